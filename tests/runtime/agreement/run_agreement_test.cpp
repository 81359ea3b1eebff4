#include "runtime/agreement/run_agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

run_agreement agreement(std::initializer_list<agreed_field> fields) {
  run_agreement out;
  for (const auto& field : fields)
    EXPECT_TRUE(out.add(field)) << field.name;
  return out;
}

const run_agreement ours =
  agreement({{"strategy", "collaborative", ""}, {"lr", "0.003", ""}, {"epochs", "9", "9"}});

TEST(RunAgreement, NamesTheFieldThatDiffersAndBothValues) {
  auto theirs =
    agreement({{"strategy", "collaborative", ""}, {"lr", "0.01", "1e-2"}, {"epochs", "9", "9"}});
  auto here = disagreement(ours, theirs);
  ASSERT_TRUE(here);
  EXPECT_THAT(*here,
              StartsWith("lr is 0.003 here and 0.01 there; start it with the run's options"));
  EXPECT_THAT(*here, Not(HasSubstr("epochs")));
  EXPECT_THAT(disagreement(theirs, ours).value_or(""),
              StartsWith("lr is 0.01 here and 0.003 there;"));
}

TEST(RunAgreement, NamesTheFirstTwoAndCountsTheRest) {
  auto theirs = agreement({{"strategy", "average", ""}, {"elements", "7", ""}, {"lr", "1", ""}});
  EXPECT_THAT(disagreement(ours, theirs).value_or(""),
              StartsWith("strategy is collaborative here and average there, lr is 0.003 here and 1 "
                         "there, and 2 more;"));
}

TEST(RunAgreement, AFieldThatOnlyOneSideHasDiffers) {
  auto theirs = agreement({{"strategy", "collaborative", ""}, {"lr", "0.003", ""}});
  EXPECT_THAT(disagreement(ours, theirs).value_or(""),
              StartsWith("epochs is 9 here and not given there;"));
  EXPECT_THAT(disagreement(theirs, ours).value_or(""),
              StartsWith("epochs is not given here and 9 there;"));
}

TEST(RunAgreement, WhatIsNotKnownHereIsEqualToEverything) {
  auto node = agreement({{"strategy", "collaborative", ""}, {"lr", "", ""}, {"epochs", "9", ""}});
  EXPECT_FALSE(disagreement(ours, node));
  EXPECT_FALSE(disagreement(node, ours));
}

TEST(RunAgreement, RoundingDiffersIfNeitherTheSoftwareNorTheUpdateIsTheSame) {
  auto of = [](const char* words, std::uint64_t hash) {
    return agreement({{"lr", "0.1", ""}, rounding_field(words, hash)});
  };
  auto here = of("that of PyTorch 2", 7);
  for (const auto& fits : {of("that of PyTorch 2", 7), of("that of PyTorch 2", 8),
                           of("that of PyTorch 1", 7), agreement({{"lr", "0.1", ""}})}) {
    EXPECT_FALSE(disagreement(here, fits));
    EXPECT_FALSE(disagreement(fits, here));
    EXPECT_EQ(here.hash(), fits.hash()) << "peers that fit average with each other";
  }
  EXPECT_EQ(disagreement(here, of("that of PyTorch 1", 8)).value_or(""),
            "rounding is that of PyTorch 2 here and that of PyTorch 1 there; start it with the "
            "run's options");
}

TEST(RunAgreement, HowAnOptionIsWrittenIsNotCompared) {
  auto theirs =
    agreement({{"strategy", "collaborative", ""}, {"lr", "0.003", "3e-3"}, {"epochs", "9", ""}});
  EXPECT_FALSE(disagreement(ours, theirs));
  EXPECT_EQ(ours.hash(), theirs.hash());
}

TEST(RunAgreement, TheHashIsOfNamesAndValues) {
  EXPECT_NE(agreement({{"a", "bc", ""}}).hash(), agreement({{"ab", "c", ""}}).hash());
  EXPECT_NE(agreement({{"a", "1", ""}}).hash(), agreement({{"a", "2", ""}}).hash());
  EXPECT_NE(agreement({{"a", "1", ""}, {"b", "2", ""}}).hash(),
            agreement({{"b", "2", ""}, {"a", "1", ""}}).hash());
}

TEST(RunAgreement, IsReadAsItIsWritten) {
  EXPECT_EQ(*run_agreement::decode(ours.encode()), ours);
  EXPECT_TRUE(run_agreement::decode(run_agreement{}.encode()));
}

TEST(RunAgreement, RefusesWhatIsOutOfItsLimits) {
  auto refusal = [](agreed_field field) {
    auto copy = ours;
    auto added = copy.add(std::move(field));
    EXPECT_EQ(copy, ours);
    return added ? ec::none : added.error().code;
  };
  std::string longest(run_agreement::text_bytes_max, 'x');
  EXPECT_EQ(refusal({"lr", "1", ""}), ec::bad_config) << "the name exists already";
  EXPECT_EQ(refusal({"", "1", ""}), ec::bad_config);
  EXPECT_EQ(refusal({"Width", "1", ""}), ec::bad_config);
  EXPECT_EQ(refusal({"a b", "1", ""}), ec::bad_config);
  EXPECT_EQ(refusal({std::string(run_agreement::name_bytes_max + 1, 'n'), "1", ""}),
            ec::bad_config);
  EXPECT_EQ(refusal({"data", longest + "x", ""}), ec::bad_config);
  EXPECT_EQ(refusal({"data", "", longest + "x"}), ec::bad_config);
  EXPECT_EQ(refusal({"data", "a\nb", ""}), ec::bad_config);
  EXPECT_EQ(refusal({"data", "", "\x1b[2J"}), ec::bad_config);
}

TEST(RunAgreement, NeverGrowsBeyondWhatAHandshakeCarries) {
  run_agreement all;
  std::string text(run_agreement::text_bytes_max, 'x');
  std::size_t taken = 0;
  for (std::size_t i = 0; i < 10; ++i)
    taken += all.add({"f" + std::to_string(i), text, ""}) ? 1 : 0;
  EXPECT_EQ(taken, 2U);
  EXPECT_LE(all.encode().size(), run_agreement::bytes_max);
  run_agreement many;
  taken = 0;
  for (std::size_t i = 0; i < 2 * run_agreement::fields_max; ++i)
    taken += many.add({"f" + std::to_string(i), "1", ""}) ? 1 : 0;
  EXPECT_EQ(taken, run_agreement::fields_max);
  EXPECT_TRUE(run_agreement::decode(many.encode()));
}

TEST(RunAgreement, BytesThatAreNotAnAgreementAreRefused) {
  auto bytes = ours.encode();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(run_agreement::decode(bytes.substr(0, size))) << size;
  EXPECT_FALSE(run_agreement::decode(bytes + "x"));
  EXPECT_FALSE(run_agreement::decode(std::string(run_agreement::bytes_max + 1, '\0')));
  auto twice = agreement({{"a", "1", ""}, {"b", "2", ""}}).encode();
  twice[twice.find('b')] = 'a';
  EXPECT_FALSE(run_agreement::decode(twice));
  random_source random{5};
  for (int i = 0; i < 20'000; ++i) {
    auto broken = bytes;
    for (auto n = 1 + random.below(4); n > 0; --n)
      broken[random.below(broken.size())] = static_cast<char>(random.next());
    if (auto read = run_agreement::decode(broken)) {
      EXPECT_EQ(read->encode(), broken);
    }
  }
}

TEST(RunAgreement, LongValuesAreCutInTheSentence) {
  auto a = agreement({{"codec", std::string(900, 'a'), ""}});
  auto b = agreement({{"codec", std::string(900, 'b'), ""}});
  EXPECT_LT(disagreement(a, b).value_or("").size(), 400U);
}

} // namespace
} // namespace waggle
