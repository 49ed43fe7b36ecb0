// The checks of tnt-bench find and name errors that are put into a correct result.
#include "benchmarks/verify.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/element.hpp"

namespace tnt::bench {
namespace {

constexpr std::uint64_t before = 7;

// A correct result for the problem's exact input.
std::vector<std::byte> correct(const Problem& problem) {
  std::vector<std::byte> out(out_count(problem) * tnt_dtype_size(problem.dtype));
  for (std::size_t i = 0; i < out_count(problem); ++i) store(out.data(), i, problem.dtype, expected(problem, exact_input, i));
  return out;
}

Problem problem_of(tnt_dtype_t dtype, tnt_op_t op, int ranks = 4) {
  return {.collective = Collective::all_reduce, .ranks = ranks, .rank = 1, .count = 1000, .dtype = dtype, .op = op, .seed = 8};
}

struct Case {
  tnt_dtype_t dtype;
  tnt_op_t op;
};

class Verify : public testing::TestWithParam<Case> {};

TEST_P(Verify, passes_what_is_right) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
        Collective::all_to_all, Collective::sendrecv, Collective::reduce, Collective::gather, Collective::scatter,
        Collective::all_gather_v, Collective::reduce_scatter_v, Collective::all_to_all_v}) {
    Problem problem = problem_of(GetParam().dtype, GetParam().op);
    problem.collective = collective;
    const Verdict verdict = verify_exact(problem, correct(problem).data(), before);
    EXPECT_EQ(verdict.check, "ok") << name(collective) << ": " << verdict.text;
    EXPECT_EQ(verdict.wrong, 0U);
  }
}

TEST_P(Verify, inputs_are_exact_in_any_order) {
  const Problem problem = problem_of(GetParam().dtype, GetParam().op, 8);
  for (std::size_t i = 0; i < problem.count; ++i) {
    double partial = problem.op == TNT_PROD ? 1 : 0;
    for (int rank = problem.ranks; rank-- > 0;) {  // in the opposite order, rounded at every step
      const double x = exact_input(problem, rank, i);
      EXPECT_EQ(rounded(x, problem.dtype), x);
      if (problem.op == TNT_SUM || problem.op == TNT_AVG) partial = rounded(partial + x, problem.dtype);
      if (problem.op == TNT_PROD) partial = rounded(partial * x, problem.dtype);
    }
    if (problem.op == TNT_SUM || problem.op == TNT_PROD) {
      EXPECT_EQ(partial, expected(problem, exact_input, i));
    }
    if (problem.op == TNT_AVG) {
      EXPECT_EQ(partial / 8, expected(problem, exact_input, i));
    }
  }
}

TEST_P(Verify, names_one_wrong_element) {
  const Problem problem = problem_of(GetParam().dtype, GetParam().op);
  auto out = correct(problem);
  store(out.data(), 123, problem.dtype, 99);
  const Verdict verdict = verify_exact(problem, out.data(), before);
  EXPECT_EQ(verdict.check, "wrong");
  EXPECT_EQ(verdict.wrong, 1U);
  EXPECT_NE(verdict.text.find("rank 1: 1 of 1000"), std::string::npos) << verdict.text;
  EXPECT_NE(verdict.text.find("element 123 is 0x"), std::string::npos) << verdict.text;
}

INSTANTIATE_TEST_SUITE_P(types_and_ops, Verify,
                         testing::Values(Case{TNT_FLOAT32, TNT_SUM}, Case{TNT_FLOAT64, TNT_SUM}, Case{TNT_FLOAT16, TNT_SUM},
                                         Case{TNT_BFLOAT16, TNT_SUM}, Case{TNT_BFLOAT16, TNT_AVG}, Case{TNT_BFLOAT16, TNT_PROD},
                                         Case{TNT_INT8, TNT_SUM}, Case{TNT_UINT8, TNT_SUM}, Case{TNT_INT32, TNT_MIN},
                                         Case{TNT_INT64, TNT_MAX}, Case{TNT_FLOAT32, TNT_AVG}, Case{TNT_FLOAT32, TNT_PROD},
                                         Case{TNT_UINT32, TNT_BXOR}, Case{TNT_UINT64, TNT_SUM}, Case{TNT_INT8, TNT_LAND}));

std::string text_of(const Problem& problem, const std::vector<std::byte>& out) {
  return verify_exact(problem, out.data(), before).text;
}

TEST(VerifyGuess, missing_rank) {
  const Problem problem = problem_of(TNT_FLOAT32, TNT_SUM);
  auto out = correct(problem);
  for (std::size_t i = 250; i < 500; ++i) {
    store(out.data(), i, problem.dtype, expected(problem, exact_input, i) - exact_input(problem, 2, i));
  }
  EXPECT_NE(text_of(problem, out).find("rank 2 is missing"), std::string::npos) << text_of(problem, out);
}

TEST(VerifyGuess, counted_twice) {
  const Problem problem = problem_of(TNT_FLOAT16, TNT_SUM);
  auto out = correct(problem);
  for (std::size_t i = 0; i < problem.count; ++i) {
    store(out.data(), i, problem.dtype, expected(problem, exact_input, i) + exact_input(problem, 3, i));
  }
  EXPECT_NE(text_of(problem, out).find("rank 3 is counted twice"), std::string::npos) << text_of(problem, out);
}

TEST(VerifyGuess, shifted) {
  const Problem problem = problem_of(TNT_INT32, TNT_SUM);
  auto out = correct(problem);
  std::memmove(out.data() + 2 * sizeof(std::int32_t), out.data(), 900 * sizeof(std::int32_t));
  EXPECT_NE(text_of(problem, out).find("shifted by 2 elements"), std::string::npos) << text_of(problem, out);
}

TEST(VerifyGuess, never_written) {
  const Problem problem = problem_of(TNT_BFLOAT16, TNT_SUM);
  auto out = correct(problem);
  fill_stale(out.data() + 200, 100);
  EXPECT_NE(text_of(problem, out).find("stale: never written"), std::string::npos) << text_of(problem, out);
}

TEST(VerifyGuess, previous_result) {
  const Problem problem = problem_of(TNT_FLOAT64, TNT_SUM);
  Problem previous = problem;
  previous.seed = before;
  EXPECT_NE(text_of(problem, correct(previous)).find("stale: the previous result"), std::string::npos);
}

TEST(VerifyAccuracy, rounding_once_is_within_the_bound_and_bfloat16_accumulation_is_not) {
  const Problem problem = problem_of(TNT_BFLOAT16, TNT_SUM, 8);
  std::vector<std::byte> once(problem.count * 2);
  std::vector<std::byte> each(problem.count * 2);
  for (std::size_t i = 0; i < problem.count; ++i) {
    store(once.data(), i, problem.dtype, rounded(expected(problem, random_input, i), problem.dtype));
    double sum = 0;
    for (int rank = 0; rank < problem.ranks; ++rank) sum = rounded(sum + random_input(problem, rank, i), problem.dtype);
    store(each.data(), i, problem.dtype, sum);
  }
  EXPECT_LE(largest_error(problem, once.data()), error_bound(problem));
  EXPECT_GT(largest_error(problem, each.data()), error_bound(problem));
}

}  // namespace
}  // namespace tnt::bench
