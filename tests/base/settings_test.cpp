// The environment variables: accepted values, units, and error messages for invalid values.
#include "base/settings.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "common/error.hpp"

namespace tnt {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Settings read(const Variables& variables) { return read_settings(environment_of(variables)); }

std::string file_for(const Variables& variables) { return host_cache_file(environment_of(variables), "tuning"); }

TEST(Settings, WithoutVariablesTheProcessIsAlone) {
  const Settings settings = read({});
  EXPECT_EQ(settings.rank, 0);
  EXPECT_EQ(settings.ranks, 1);
  EXPECT_EQ(settings.timeout, 600.0);
  EXPECT_FALSE(settings.fusion_threshold);
  EXPECT_FALSE(settings.gradient_dtype);
  EXPECT_EQ(settings.timeline, "");
  EXPECT_EQ(settings.log_level, LogLevel::warning);
  EXPECT_FALSE(settings.log_on_all_ranks);
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
  for (const char* with_log : {"log", "LOG", "output,log", "log,tensorboard"}) {
    EXPECT_TRUE(read({{"TNT_ON_ALL_RANKS", with_log}}).log_on_all_ranks) << with_log;
  }
  for (const char* without_log : {"", "output", "Tensorboard,Output"}) {
    EXPECT_FALSE(read({{"TNT_ON_ALL_RANKS", without_log}}).log_on_all_ranks) << without_log;
  }
  EXPECT_TRUE(read({{"TNT_ON_ALL_RANKS", "Output"}}).output_on_all_ranks);
  EXPECT_TRUE(read({{"TNT_ON_ALL_RANKS", "log,tensorboard"}}).tensorboard_on_all_ranks);
  EXPECT_TRUE(read({{"TNT_ON_ALL_RANKS", "mlflow,log"}}).mlflow_on_all_ranks);
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
  EXPECT_EQ(read({{"TNT_TRANSPORT", "MPI:native"}}).transport, TransportChoice::mpi_native);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "mpi:auto"}}).transport, TransportChoice::mpi_auto);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "tcp"}}).transport, TransportChoice::tcp);
  EXPECT_EQ(read({{"TNT_TRANSPORT", "hierarchical"}}).transport, TransportChoice::hierarchical);
  EXPECT_EQ(read({{"TNT_INTERNAL_OVERLAP", "Auto"}}).overlap, Overlap::automatic);
  EXPECT_EQ(read({{"TNT_INTERNAL_OVERLAP", "on"}}).overlap, Overlap::on);
  EXPECT_EQ(read({{"TNT_INTERNAL_OVERLAP", "off"}}).overlap, Overlap::off);
  EXPECT_EQ(read({{"TNT_REPRODUCIBLE", "8"}}).shards, 8);
  EXPECT_EQ(read({{"TNT_REPRODUCIBLE", ""}}).shards, std::nullopt);
  EXPECT_EQ(read({{"TNT_GPUS_PER_NODE", "-1"}}).gpus_per_node, -1);
  EXPECT_TRUE(read({{"TNT_FUSION_THRESHOLD", "Autotune"}}).autotune);
  EXPECT_FALSE(read({{"TNT_FUSION_THRESHOLD", "Autotune"}}).fusion_threshold);
  EXPECT_EQ(read({{"TNT_INTERNAL_NODE", "left"}}).node, "left");
  EXPECT_EQ(read({{"TNT_INTERNAL_DOMAIN", "4"}}).domain, 4);
  EXPECT_EQ(read({}).domain, std::nullopt);
  EXPECT_EQ(read({{"TNT_INTERNAL_TUNING", "a file"}}).tuning, "a file");
  EXPECT_EQ(read({{"TNT_NCCL_LIBRARY", "a file"}}).nccl_library, "a file");
  EXPECT_EQ(read({{"TNT_INTERNAL_TUNING", "a file"}}).tuning_cache, "");
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
        Nonsense{{{"TNT_LOG_LEVEL", "loud"}}, "TNT_LOG_LEVEL=loud"}, Nonsense{{{"TNT_TRANSPORT", "udp"}}, "TNT_TRANSPORT=udp"},
        Nonsense{{{"TNT_TRANSPORT", "tcp:native"}}, "TNT_TRANSPORT=tcp:native"},
        Nonsense{{{"TNT_DEVICE_TRANSPORT", "shm"}}, "TNT_DEVICE_TRANSPORT=shm"},
        Nonsense{{{"TNT_GRADIENT_DTYPE", "float32"}}, "TNT_GRADIENT_DTYPE=float32: expected bfloat16, float16 or none"},
        Nonsense{{{"TNT_GRADIENT_DTYPE", ""}}, "TNT_GRADIENT_DTYPE="},
        Nonsense{{{"TNT_ON_ALL_RANKS", "2"}}, "TNT_ON_ALL_RANKS=2: expected a list"},
        Nonsense{{{"TNT_REPRODUCIBLE", "6"}}, "TNT_REPRODUCIBLE=6: expected a power of two"},
        Nonsense{{{"TNT_REPRODUCIBLE", "0"}}, "TNT_REPRODUCIBLE=0"},
        Nonsense{{{"TNT_GPUS_PER_NODE", "two"}}, "TNT_GPUS_PER_NODE=two: expected a whole number"}));

TEST(Settings, HaveOneSpelling) {
  const std::map<std::pair<std::string, std::string>, std::string> spellings{
      {{"TNT_FUSION_THRESHOLD", "4M"}, "4194304"},
      {{"TNT_FUSION_THRESHOLD", "INF"}, "inf"},
      {{"TNT_FUSION_THRESHOLD", "autotune"}, "autotune"},
      {{"TNT_GRADIENT_DTYPE", "BFloat16"}, "bfloat16"},
      {{"TNT_LOG_LEVEL", "warn"}, "WARNING"},
      {{"TNT_ON_ALL_RANKS", "MLflow,tensorboard,LOG"}, "log,tensorboard,mlflow"},
      {{"TNT_TIMEOUT", "1.50"}, "1.5"},
      {{"TNT_TRANSPORT", "SHM"}, "shm"},
      {{"TNT_DEVICE_TRANSPORT", "Staged"}, "staged"},
      {{"TNT_REPRODUCIBLE", "8"}, "8"},
      {{"TNT_GPUS_PER_NODE", "0"}, "0"},
      {{"TNT_TIMELINE", "A file"}, "A file"}};
  for (const auto& [given, text] : spellings) {
    EXPECT_EQ(canonical_setting(given.first.c_str(), given.second.c_str()), text) << given.first << "=" << given.second;
  }
  const std::map<std::string, std::string> defaults{{"TNT_TIMEOUT", "600"},       {"TNT_FUSION_THRESHOLD", ""},
                                                    {"TNT_LOG_LEVEL", "WARNING"}, {"TNT_GRADIENT_DTYPE", "none"},
                                                    {"TNT_TRANSPORT", "auto"},    {"TNT_ON_ALL_RANKS", ""}};
  for (const auto& [name, text] : defaults) EXPECT_EQ(canonical_setting(name.c_str(), nullptr), text) << name;
}

struct Unknown {
  const char* name;
  const char* instead;
};
class UnknownSetting : public ::testing::TestWithParam<Unknown> {
 protected:
  void TearDown() override { unsetenv(GetParam().name); }
};
TEST_P(UnknownSetting, IsAnErrorThatNamesTheNearest) {
  setenv(GetParam().name, "1", 1);
  try {
    (void)read_settings();
    FAIL() << "taken: " << GetParam().name;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.what()),
              fmt::format("{} is not a setting of Tarantella: use {} (docs/settings.md has them all)", GetParam().name,
                          GetParam().instead));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Names, UnknownSetting,
    ::testing::Values(Unknown{"TNT_FUSION_TRESHOLD", "TNT_FUSION_THRESHOLD"}, Unknown{"TNT_TIME_OUT", "TNT_TIMEOUT"},
                      Unknown{"TNT_FUSION", "TNT_FUSION_THRESHOLD"}, Unknown{"TNT_INTERNAL_RANK", "TNT_RANK"},
                      Unknown{"TNT_OVERLAP", "TNT_INTERNAL_OVERLAP"}, Unknown{"TNT_AUTOTUNE", "TNT_FUSION_THRESHOLD=autotune"},
                      Unknown{"TNT_LOG_ON_ALL_DEVICES", "TNT_ON_ALL_RANKS=log"}));

TEST(HostCache, IsWhereTheEnvironmentSays) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const std::string name = std::string("tarantella/tuning-") + host.data() + ".json";
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", "/cache"}, {"HOME", "/home/me"}}), "/cache/" + name);
  EXPECT_EQ(file_for({{"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", ""}, {"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({}), "");
  EXPECT_EQ(file_for({{"HOME", "here"}}), "");
}

}  // namespace
}  // namespace tnt
