#include "bootstrap/unique_id.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "common/error.hpp"

namespace {

using namespace tnt;

tnt_unique_id_t id_of(const std::string& text) {
  tnt_unique_id_t id{};
  std::copy_n(text.begin(), std::min(text.size(), sizeof(id.text)), std::begin(id.text));
  return id;
}

TEST(UniqueId, IsReadAsItWasMade) {
  for (const std::string rendezvous : {"", "tcp://node1:4711", "tcp://[fe80::1]:4711"}) {
    const tnt_unique_id_t id = make_unique_id(rendezvous);
    const MeetingPlace place = read_unique_id(id);
    if (!rendezvous.empty()) {
      EXPECT_EQ(place.rendezvous, rendezvous);
    }
    EXPECT_EQ(id.text, place.rendezvous + " " + place.token);
    EXPECT_EQ(read_unique_id(id_of(id.text)).token, place.token) << "its text is enough";
  }
}

TEST(UniqueId, HasANewSecretEachTime) {
  const MeetingPlace one = read_unique_id(make_unique_id(""));
  const MeetingPlace other = read_unique_id(make_unique_id(""));
  EXPECT_NE(one.token, other.token);
  EXPECT_NE(one.rendezvous, other.rendezvous);
}

TEST(UniqueId, NonsenseIsRefused) {
  const std::string secret(32, 'a');
  for (const std::string& text :
       {std::string(), std::string(300, 'x'), "tarantella-1 " + secret.substr(1), "tarantella-1 " + secret + "0",
        "tarantella-1 " + std::string(32, 'g'), "word " + secret, "tcp://host " + secret, "tarantella-1  " + secret, secret}) {
    try {
      (void)read_unique_id(id_of(text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT) << text;
      EXPECT_EQ(std::string(error.what()).find(secret), std::string::npos) << error.what();
    }
  }
}

}  // namespace
