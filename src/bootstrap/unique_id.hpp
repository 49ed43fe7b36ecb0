// Where the processes of a new communicator meet, and the secret by which they know one another: the text of a tnt_unique_id_t,
// two words that a program passes on by means of its own.
#pragma once

#include <string>

#include "tarantella/tarantella.h"

namespace tnt {

struct MeetingPlace {
  std::string rendezvous;
  std::string token;
};

// With a new secret. rendezvous: tcp://host:port; "": a new name on this host. Throws TNT_INVALID_ARGUMENT.
[[nodiscard]] tnt_unique_id_t make_unique_id(const std::string& rendezvous);

// Throws TNT_INVALID_ARGUMENT unless make_unique_id has made it. The message has nothing of the secret.
[[nodiscard]] MeetingPlace read_unique_id(const tnt_unique_id_t& id);

}  // namespace tnt
