// The environment variables: accepted values, units, and error messages for invalid values.
#include "base/settings.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <map>

#include "base/error.hpp"

namespace tnt {
namespace {

using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  return read_settings([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Settings, WithoutVariablesTheProcessIsAlone) {
  const Settings settings = read({});
  EXPECT_EQ(settings.rank, 0);
  EXPECT_EQ(settings.ranks, 1);
  EXPECT_EQ(settings.timeout, 600.0);
  EXPECT_FALSE(settings.fusion_threshold);
  EXPECT_FALSE(settings.gradient_dtype);
  EXPECT_EQ(settings.timeline, "");
  EXPECT_EQ(settings.log_level, LogLevel::warning);
  EXPECT_FALSE(settings.log_on_all_devices);
}

TEST(Settings, TheLaunchersVariablesAreTaken) {
  const Settings settings = read({{"TNT_RANK", "3"}, {"TNT_SIZE", "4"}, {"TNT_RENDEZVOUS", "name"}, {"TNT_TOKEN", "secret"}});
  EXPECT_EQ(settings.rank, 3);
  EXPECT_EQ(settings.ranks, 4);
  EXPECT_EQ(settings.rendezvous, "name");
  EXPECT_EQ(settings.token, "secret");
}

struct Threshold {
  const char* text;
  std::size_t bytes;
};
class FusionThreshold : public ::testing::TestWithParam<Threshold> {};
TEST_P(FusionThreshold, IsKilobytesUnlessItSaysItsUnit) {
  EXPECT_EQ(read({{"TNT_FUSION_THRESHOLD", GetParam().text}}).fusion_threshold, GetParam().bytes);
}
INSTANTIATE_TEST_SUITE_P(Forms, FusionThreshold,
                         ::testing::Values(Threshold{"0", 0}, Threshold{"32", 32768}, Threshold{"0.5", 512},
                                           Threshold{"32k", 32768}, Threshold{"32K", 32768}, Threshold{"4M", 4194304},
                                           Threshold{"1.5g", 1610612736}, Threshold{"1e3", 1024000},
                                           Threshold{"inf", std::numeric_limits<std::size_t>::max() / 2},
                                           Threshold{"INF", std::numeric_limits<std::size_t>::max() / 2}));

TEST(Settings, WordsAreTakenInAnyCase) {
  for (const char* yes : {"1", "true", "True", "ON", "yes"}) {
    EXPECT_TRUE(read({{"TNT_LOG_ON_ALL_DEVICES", yes}}).log_on_all_devices) << yes;
  }
  for (const char* no : {"0", "false", "Off", "NO", ""}) {
    EXPECT_FALSE(read({{"TNT_LOG_ON_ALL_DEVICES", no}}).log_on_all_devices) << no;
  }
  EXPECT_EQ(read({{"TNT_LOG_LEVEL", "Debug"}}).log_level, LogLevel::debug);
  EXPECT_EQ(read({{"TNT_LOG_LEVEL", "INFO"}}).log_level, LogLevel::info);
  EXPECT_EQ(read({{"TNT_LOG_LEVEL", "warn"}}).log_level, LogLevel::warning);
  EXPECT_EQ(read({{"TNT_LOG_LEVEL", "error"}}).log_level, LogLevel::error);
  EXPECT_EQ(read({}).device_transport, DeviceTransport::nccl);
  EXPECT_EQ(read({{"TNT_DEVICE_TRANSPORT", "Staged"}}).device_transport, DeviceTransport::staged);
  EXPECT_EQ(read({{"TNT_DEVICE_TRANSPORT", "nccl"}}).device_transport, DeviceTransport::nccl);
  EXPECT_EQ(read({{"TNT_DEVICE_TRANSPORT", "hierarchical"}}).device_transport, DeviceTransport::hierarchical);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "AUTO"}}).transport, TransportChoice::automatic);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "shm"}}).transport, TransportChoice::shm);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "Mpi"}}).transport, TransportChoice::mpi);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "hierarchical"}}).transport, TransportChoice::hierarchical);
  EXPECT_EQ(read({{"TNT_OVERLAP", "Auto"}}).overlap, Overlap::automatic);
  EXPECT_EQ(read({{"TNT_OVERLAP", "on"}}).overlap, Overlap::on);
  EXPECT_EQ(read({{"TNT_OVERLAP", "0"}}).overlap, Overlap::off);
  EXPECT_EQ(read({{"TNT_NODE", "left"}}).node, "left");
  EXPECT_EQ(read({{"TNT_TUNING", "a file"}}).tuning, "a file");
  EXPECT_EQ(read({{"TNT_NCCL_LIBRARY", "a file"}}).nccl_library, "a file");
  EXPECT_EQ(read({{"TNT_TUNING", "a file"}}).tuning_cache, "");
  EXPECT_NE(read({{"HOME", "/home/me"}}).tuning_cache.find("/home/me/.cache/tarantella/tuning-"), std::string::npos);
  EXPECT_EQ(read({{"TNT_TIMEOUT", "0.25"}}).timeout, 0.25);
  EXPECT_EQ(read({{"TNT_GRADIENT_DTYPE", "BFloat16"}}).gradient_dtype, TNT_BFLOAT16);
  EXPECT_EQ(read({{"TNT_GRADIENT_DTYPE", "float16"}}).gradient_dtype, TNT_FLOAT16);
  EXPECT_EQ(read({{"TNT_GRADIENT_DTYPE", "none"}}).gradient_dtype, std::nullopt);
  EXPECT_EQ(read({{"TNT_TIMELINE", "a file"}}).timeline, "a file");
}

struct Nonsense {
  Variables variables;
  const char* named;  // expected in the message
};
class SettingsNonsense : public ::testing::TestWithParam<Nonsense> {};
TEST_P(SettingsNonsense, IsNamed) {
  try {
    (void)read(GetParam().variables);
    FAIL() << "taken: " << GetParam().named;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find(GetParam().named), std::string::npos) << error.what();
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, SettingsNonsense,
    ::testing::Values(
        Nonsense{{{"TNT_RANK", "-1"}}, "TNT_RANK=-1"}, Nonsense{{{"TNT_RANK", "one"}}, "TNT_RANK=one"},
        Nonsense{{{"TNT_RANK", ""}}, "TNT_RANK="}, Nonsense{{{"TNT_RANK", "1 "}}, "TNT_RANK=1 "},
        Nonsense{{{"TNT_RANK", "99999999999"}}, "TNT_RANK=99999999999"}, Nonsense{{{"TNT_SIZE", "0"}}, "TNT_SIZE=0"},
        Nonsense{{{"TNT_RANK", "1"}}, "TNT_RANK=1"}, Nonsense{{{"TNT_SIZE", "2"}}, "tarantella -n 2"},
        Nonsense{{{"TNT_SIZE", "2"}, {"TNT_RENDEZVOUS", "x"}}, "TNT_TOKEN"}, Nonsense{{{"TNT_TIMEOUT", "0"}}, "TNT_TIMEOUT=0"},
        Nonsense{{{"TNT_TIMEOUT", "nan"}}, "TNT_TIMEOUT=nan"}, Nonsense{{{"TNT_TIMEOUT", "inf"}}, "TNT_TIMEOUT=inf"},
        Nonsense{{{"TNT_TIMEOUT", "1s"}}, "TNT_TIMEOUT=1s"},
        Nonsense{{{"TNT_FUSION_THRESHOLD", "-1"}}, "TNT_FUSION_THRESHOLD=-1"},
        Nonsense{{{"TNT_FUSION_THRESHOLD", "4T"}}, "TNT_FUSION_THRESHOLD=4T"},
        Nonsense{{{"TNT_FUSION_THRESHOLD", "1e30"}}, "TNT_FUSION_THRESHOLD=1e30"},
        Nonsense{{{"TNT_FUSION_THRESHOLD", "nan"}}, "TNT_FUSION_THRESHOLD=nan"},
        Nonsense{{{"TNT_FUSION_THRESHOLD", ""}}, "TNT_FUSION_THRESHOLD="},
        Nonsense{{{"TNT_LOG_LEVEL", "loud"}}, "TNT_LOG_LEVEL=loud"}, Nonsense{{{"TNT_TRANSPORT", "tcp"}}, "TNT_TRANSPORT=tcp"},
        Nonsense{{{"TNT_DEVICE_TRANSPORT", "shm"}}, "TNT_DEVICE_TRANSPORT=shm"},
        Nonsense{{{"TNT_GRADIENT_DTYPE", "float32"}}, "TNT_GRADIENT_DTYPE=float32: expected bfloat16, float16 or none"},
        Nonsense{{{"TNT_GRADIENT_DTYPE", ""}}, "TNT_GRADIENT_DTYPE="},
        Nonsense{{{"TNT_LOG_ON_ALL_DEVICES", "2"}}, "TNT_LOG_ON_ALL_DEVICES=2"}));

}  // namespace
}  // namespace tnt
