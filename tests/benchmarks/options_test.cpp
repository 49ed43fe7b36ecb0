// The command line: the meaning of each flag, and the one-line error for invalid values.
#include "benchmarks/options.hpp"

#include <gtest/gtest.h>

#include "benchmarks/rows.hpp"
#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::parse_line;
using testing::parse_words;
using testing::refusal;

TEST(Options, Defaults) {
  const Options options = parse_line("");
  EXPECT_EQ(options.collective, Collective::all_reduce);
  EXPECT_EQ(options.backends, (std::vector<std::string>{"shm"}));
  EXPECT_EQ(options.sizes.front().bytes, 4U);
  EXPECT_EQ(options.sizes.back().bytes, 64U << 20);
  EXPECT_EQ(options.sizes.size(), 13U);
  EXPECT_EQ(options.place, Place::both);
  EXPECT_EQ(options.cache, Cache::rotate);
  EXPECT_TRUE(options.check_exact && options.check_accuracy && options.check_repeat);
  EXPECT_TRUE(options.measure_limit);
  EXPECT_FALSE(options.ranks || options.against || options.iterations || options.limit_gbps || options.dry_run);
}

TEST(Options, TheCommandOfTheIssue) {
  const Options options =
      parse_line("all_reduce --ranks 2 --backend shm --against mpi -b 4 -e 64M -f 4 --format jsonl -o /tmp/out.jsonl");
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.against, "mpi");
  EXPECT_EQ(options.sizes.size(), 13U);
  EXPECT_EQ(options.format, Format::jsonl);
  EXPECT_EQ(options.output, "/tmp/out.jsonl");
}

TEST(Options, CollectivesInAnySpelling) {
  EXPECT_EQ(parse_line("allreduce").collective, Collective::all_reduce);
  EXPECT_EQ(parse_line("all-gather").collective, Collective::all_gather);
  EXPECT_EQ(parse_line("reduce_scatter").collective, Collective::reduce_scatter);
  EXPECT_EQ(parse_line("broadcast").collective, Collective::broadcast);
  EXPECT_EQ(parse_line("reduce").place, Place::both);
  EXPECT_EQ(parse_line("gather -r 1").root, 1);
  EXPECT_EQ(parse_line("scatter").sizes.front().bytes, parse_line("all_gather").sizes.front().bytes);
  EXPECT_EQ(parse_line("allgatherv").collective, Collective::all_gather_v);
  EXPECT_EQ(parse_line("reduce_scatter_v -O max").ops, std::vector{TNT_MAX});
  EXPECT_EQ(parse_line("barrier").sizes.size(), 1U);
}

TEST(Options, TypesAndOperations) {
  EXPECT_EQ(parse_line("-d half,bf16,f32,float").dtypes, (std::vector{TNT_FLOAT16, TNT_BFLOAT16, TNT_FLOAT32}));
  EXPECT_EQ(parse_line("-d all").dtypes.size(), 10U);
  EXPECT_EQ(parse_line("-d all").sizes.front().bytes, 8U);  // a whole element of every type
  EXPECT_EQ(parse_line("-O avg,max").ops, (std::vector{TNT_AVG, TNT_MAX}));
  EXPECT_EQ(parse_line("--op all").ops.size(), 11U);
  EXPECT_EQ(planned_rows(parse_line("--op all --sizes 4K --place out"), 2).size(), 5U);  // float32 has no bits
  EXPECT_EQ(planned_rows(parse_line("--op all -d u32,f32 --sizes 4K --place out"), 2).size(), 16U);
  EXPECT_EQ(refusal([] { (void)parse_line("-O sum,bxor"); }), "-O sum,bxor: bxor needs an integer type, such as -d int32");
}

TEST(Options, OneEndOfTheRangeMovesTheOther) {
  EXPECT_EQ(parse_line("-b 128M").sizes.size(), 1U);
  EXPECT_EQ(parse_line("-e 16").sizes.size(), 2U);
  EXPECT_EQ(parse_line("-b 1K -e 4K -i 1K").sizes.size(), 4U);
  EXPECT_EQ(parse_line("-b 4 -e 1K -f 2").sizes.size(), 9U);
}

TEST(Options, Method) {
  const Options options =
      parse_line("-w 0 --target 0.5% --max-time 0.25 -T 5 --cache hot --place in -u 1 -c exact,repeat --limit 48.5 --seed 7");
  EXPECT_EQ(options.warmup, 0);
  EXPECT_DOUBLE_EQ(options.target, 0.005);
  EXPECT_DOUBLE_EQ(options.max_time, 0.25);
  EXPECT_DOUBLE_EQ(options.timeout, 5);
  EXPECT_EQ(options.cache, Cache::hot);
  EXPECT_EQ(options.place, Place::in);
  EXPECT_EQ(options.unalign, 1U);
  EXPECT_TRUE(options.check_exact && !options.check_accuracy && options.check_repeat);
  EXPECT_EQ(options.limit_gbps, 48.5);
  EXPECT_FALSE(options.measure_limit);
  EXPECT_EQ(options.seed, 7U);
  EXPECT_EQ(parse_line("-n 20").iterations, 20);
  EXPECT_FALSE(parse_line("--limit off").measure_limit);
  EXPECT_FALSE(parse_line("-c off").check_exact);
  EXPECT_FALSE(parse_line("-c 0").check_repeat);
  EXPECT_TRUE(parse_line("-c 1").check_accuracy);
  EXPECT_EQ(parse_line("-c 1").check_runs, 1);
  EXPECT_EQ(parse_line("-c 20").check_runs, 20);
  EXPECT_TRUE(parse_line("-c 20").check_repeat);
}

TEST(Options, HabitsOfNcclTestsAreTakenWhereTheyChangeNothing) {
  const Options options =
      parse_line("all_reduce -b 8 -e 128m -f 2 -g 1 -t 1 -z 0 -R 0 -G 0 -m 1 -a 1 -p 0 -C 0 -D 0 -c 1 -n 20");
  EXPECT_EQ(options.sizes.size(), 25U);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(parse_line("--ngpus 1 --average 3 -b 1k -e 1k").sizes.front().bytes, 1024U);
}

TEST(Options, Models) {
  const Options bucket = parse_line("bucket --model bert_large --fusion-threshold 1M");
  EXPECT_EQ(bucket.model, "bert_large");
  EXPECT_EQ(bucket.fusion_threshold, 1U << 20);
  EXPECT_EQ(bucket.sizes.at(0).bytes, 335'141'888U * 4);
  EXPECT_EQ(bucket.wire_dtype, TNT_FLOAT32);
  EXPECT_EQ(bucket.determinism, TNT_DETERMINISM_RUN);
  EXPECT_EQ(parse_line("bucket --determinism ranks").determinism, TNT_DETERMINISM_RANKS);
  EXPECT_EQ(parse_line("bucket --wire-dtype bfloat16").wire_dtype, TNT_BFLOAT16);
  EXPECT_EQ(parse_line("overlap --wire-dtype float16").wire_dtype, TNT_FLOAT16);
  const Options overlap = parse_line("overlap --compute-ms 2.5 --fusion-threshold 0");
  EXPECT_EQ(overlap.model, "resnet50");
  EXPECT_EQ(overlap.fusion_threshold, 0U);
  EXPECT_DOUBLE_EQ(overlap.compute_ms, 2.5);
}

TEST(Options, OnlySomeCollectivesWorkInPlace) {
  EXPECT_EQ(parse_line("broadcast").place, Place::both);
  for (const char* collective : {"all_gather", "reduce_scatter", "all_to_all_v", "barrier", "bucket", "overlap"}) {
    EXPECT_EQ(parse_line(collective).place, Place::out) << collective;
  }
}

TEST(Options, ASimulationRunsOnceOnMoreRanksThanAMachineHas) {
  const Options options = parse_line("all_reduce --backend simulated --platform /dev/null --ranks 1024 --against mpich -b 1K");
  EXPECT_EQ(options.platform, "/dev/null");
  EXPECT_EQ(options.ranks, 1024);
  EXPECT_EQ(options.against, "mpich");
  EXPECT_EQ(options.iterations, 1);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.place, Place::out);
}

TEST(Options, RanksMustFit) {
  EXPECT_EQ(refusal([] { (void)parse_line("broadcast -r 2 --ranks 2"); }), "-r 2: no rank of 2");
  EXPECT_NO_THROW((void)parse_line("all_gather --ranks 512 -d f64"));
  EXPECT_EQ(refusal([] { (void)parse_line("all_gather -b 4 --ranks 2"); }),
            "all_gather of 4 bytes: below 8 bytes, one float32 for each of 2 ranks");
  Options options = parse_line("broadcast -r 3");
  EXPECT_NO_THROW(check_ranks(options, 4));
  EXPECT_EQ(refusal([&] { check_ranks(options, 3); }), "-r 3: no rank of 3");
}

struct Nonsense {
  const char* line;
  const char* begin;  // the beginning of the error: flag and value
};

class OptionsNonsenseTest : public ::testing::TestWithParam<Nonsense> {};

TEST_P(OptionsNonsenseTest, GetsOneLineNamingFlagAndValue) {
  const std::string text = refusal([] { (void)parse_line(GetParam().line); });
  EXPECT_EQ(text.find(GetParam().begin), 0U) << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionsNonsenseTest,
    ::testing::Values(
        Nonsense{"-b -4", "-b -4: not a size"}, Nonsense{"-b x", "-b x: not a size"}, Nonsense{"-b 0", "-b 0: not a size"},
        Nonsense{"-e -1M", "-e -1M: not a size"}, Nonsense{"-b 4K -e 1K", "-e 1K: below -b 4K"},
        Nonsense{"-b 6", "-b 6: no multiple of 4"}, Nonsense{"-b 4 -d f64", "-b 4: no multiple of 8, the bytes of a float64"},
        Nonsense{"-e 2", "-e 2: no multiple of 4"}, Nonsense{"-f 1", "-f 1: not above 1"}, Nonsense{"-f -2", "-f -2: "},
        Nonsense{"-f x", "-f x: "}, Nonsense{"-f nan", "-f nan: "}, Nonsense{"-i 0", "-i 0: not a size"},
        Nonsense{"-i 1K -f 2", "-i 1K: excludes -f 2"}, Nonsense{"--sizes 1K -b 4", "-b 4: excludes --sizes 1K"},
        Nonsense{"--sizes 1001", "--sizes 1001: no multiple"}, Nonsense{"--sizes @vgg", "--sizes @vgg: no such model"},
        Nonsense{"--sizes no_file.txt", "--sizes no_file.txt: neither"}, Nonsense{"--ranks 0", "--ranks 0: not a whole number"},
        Nonsense{"--ranks -2", "--ranks -2: "}, Nonsense{"--ranks 513", "--ranks 513: "},
        Nonsense{"--ranks 2.5", "--ranks 2.5: "}, Nonsense{"--backend tcp", "--backend tcp: 'tcp' is none of"},
        Nonsense{"--backend shm,", "--backend shm,: '' is none of"},
        Nonsense{"--against shm", "--against shm: none of mpi, gloo, nccl"},
        Nonsense{"--platform /dev/null --ranks 2", "--platform /dev/null: needs --backend simulated"},
        Nonsense{"--backend simulated --platform /no/file --ranks 2", "--platform /no/file: there is no such file"},
        Nonsense{"--backend simulated --ranks 2", "--backend simulated: needs --platform FILE"},
        Nonsense{"--backend simulated --platform /dev/null", "--backend simulated: needs --ranks N"},
        Nonsense{"--backend simulated --platform /dev/null --ranks 0", "--ranks 0: "},
        Nonsense{"--backend shm,simulated --platform /dev/null --ranks 2", "--backend shm,simulated: simulated time does not"},
        Nonsense{"--backend simulated --platform /dev/null --ranks 2 --against mpi", "--against mpi: none of ompi"},
        Nonsense{"--backend simulated --platform /dev/null --ranks 2 --cache hot",
                 "--cache hot: says nothing about a simulation"},
        Nonsense{"all_to_all_v --backend simulated --platform /dev/null --ranks 2", "--backend simulated: not of all_to_all_v"},
        Nonsense{"bucket --backend simulated --platform /dev/null --ranks 2", "--backend simulated: not of bucket"},
        Nonsense{"barrier --backend simulated --platform /dev/null --ranks 2 --against ompi",
                 "--against ompi: simulated libraries"},
        Nonsense{"-d f31", "-d f31: 'f31' is none of float32"}, Nonsense{"-d f32,x", "-d f32,x: 'x' is none of"},
        Nonsense{"-O add", "-O add: 'add' is none of sum"}, Nonsense{"-o sum", "-o sum: the output file here"},
        Nonsense{"-o /no/such/file", "-o /no/such/file: there is no directory"},
        Nonsense{"-o /tmp", "-o /tmp: not the name of a file"}, Nonsense{"--format xml", "--format xml: none of table"},
        Nonsense{"broadcast -r -1", "-r -1: "}, Nonsense{"broadcast -r 512", "-r 512: "},
        Nonsense{"-r 0", "-r 0: says nothing about all_reduce, only about broadcast, reduce, gather, scatter"},
        Nonsense{"bucket -b 4", "bucket of 4 bytes: not 8 equal tensors"},
        Nonsense{"bucket --tensors 3", "--tensors 3: needs sizes"},
        Nonsense{"bucket -e 1M --model resnet50", "--model resnet50: excludes sizes"},
        Nonsense{"sendrecv --ranks 1", "sendrecv of 1 rank: nobody"},
        Nonsense{"barrier -b 4", "-b 4: says nothing about barrier"},
        Nonsense{"barrier -d f32", "-d f32: says nothing about barrier"},
        Nonsense{"all_gather -O sum", "-O sum: says nothing about all_gather"},
        Nonsense{"all_gather --place in", "--place in: says nothing about all_gather"},
        Nonsense{"--model resnet50", "--model resnet50: says nothing about all_reduce"},
        Nonsense{"bucket --model vgg", "--model vgg: no such model"},
        Nonsense{"bucket --compute-ms 5", "--compute-ms 5: says nothing"},
        Nonsense{"overlap --compute-ms 0", "--compute-ms 0: "},
        Nonsense{"all_reduce --wire-dtype float16", "--wire-dtype float16: says nothing about all_reduce"},
        Nonsense{"bucket --fusion-threshold -1", "--fusion-threshold -1: "}, Nonsense{"-n 0", "-n 0: "},
        Nonsense{"-n 10 --target 1%", "--target 1%: excludes -n 10"}, Nonsense{"-w -1", "-w -1: "},
        Nonsense{"--target 2", "--target 2: not a share"}, Nonsense{"--target 0", "--target 0: "},
        Nonsense{"--target 100%", "--target 100%: "}, Nonsense{"--target %", "--target %: "},
        Nonsense{"--max-time 0", "--max-time 0: "}, Nonsense{"--max-time inf", "--max-time inf: "},
        Nonsense{"-T -1", "--timeout -1: "}, Nonsense{"--cache warm", "--cache warm: "},
        Nonsense{"--place inside", "--place inside: "}, Nonsense{"-u -1", "--unalign -1: "},
        Nonsense{"-c all,none", "--check none: "}, Nonsense{"-c exact,off", "--check exact,off: "},
        Nonsense{"--limit fast", "--limit fast: "}, Nonsense{"--limit 0", "--limit 0: "}, Nonsense{"--seed -1", "--seed -1: "},
        Nonsense{"nonsense", "nonsense: not a collective"}, Nonsense{"all_reduce more", "more: one word too many"},
        Nonsense{"-g 2", "-g 2: only 1 is known here: ranks are started by"},
        Nonsense{"-a 0", "-a 0: only 1 is known here: a time is that of the slowest"},
        Nonsense{"-G 1", "-G 1: only 0 is known here"}, Nonsense{"--nthreads 4", "-t 4: only 1 is known here"},
        Nonsense{"-c -1", "--check -1: "}, Nonsense{"-c 99999999", "--check 99999999: "},
        Nonsense{"--nonsense", "--nonsense: no such flag"}));

}  // namespace
}  // namespace tnt::bench
