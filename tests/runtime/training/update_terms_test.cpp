#include "runtime/training/update_terms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/offered_gradients.hpp"
#include "runtime/training/state_schema.hpp"
#include "runtime/training/tensor_store.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;
using kind = state_tensor::kind;

std::vector<float> values_of(const update_terms& terms) {
  std::vector<float> out(update_terms::value_count(terms.present.size(), terms.numbers_of_each));
  terms.write(out);
  return out;
}

TEST(UpdateTerms, ComeBackAsTheyWere) {
  update_terms terms{2, 3};
  terms.number(0, 0) = 0.1;
  terms.number(1, 2) = 1.0 / 3;
  terms.present[1] = false;
  auto back = update_terms::read(values_of(terms), 2, 3);
  EXPECT_EQ(back.numbers, terms.numbers);
  EXPECT_EQ(back.present, terms.present);
}

TEST(UpdateTerms, StandBetweenTheBuffersAndTheMetricsOfAGradient) {
  auto table = table_of({{"w", {2}}, {"b", {1}}}, optimizer_identity{"sgd"},
                        {{"mean", {4}, kind::buffer}, {"seen", {3}, kind::counter}}, true);
  EXPECT_EQ(table.numbers(), 4U); // rate, weight decay, momentum, dampening
  EXPECT_EQ(table.term_count(), 2U * (4 + 1) * 3);
  auto all = table.tensors();
  all.push_back({"schedule/loss", {}, kind::metric});
  state_table with_metric{all, table.numbers()};
  auto averaged = averaged_tensors::of(with_metric, lane{});
  EXPECT_EQ((*averaged)->value_count(), 3U + 4 + 3 + table.term_count() + 1);
  std::vector<std::pair<tensor_role, std::uint64_t>> places;
  for (const auto& info : *(*averaged)->infos())
    places.emplace_back(info.role, info.elements);
  EXPECT_THAT(places,
              ElementsAre(std::pair{tensor_role::gradient, 2U},
                          std::pair{tensor_role::gradient, 1U}, std::pair{tensor_role::buffer, 4U},
                          std::pair{tensor_role::counter, 3U}, std::pair{tensor_role::wish, 24U},
                          std::pair{tensor_role::counter, 6U}, std::pair{tensor_role::metric, 1U}));
  lane parameters;
  parameters.what = lane_content::parameters;
  EXPECT_EQ((*averaged_tensors::of(with_metric, parameters))->value_count(), 3U + 4 + 3);
}

TEST(UpdateTerms, OfOtherOptimizersThereIsAnotherSchema) {
  auto with = [](bool settles) {
    optimizer_identity sgd{"sgd"};
    return schema_of(table_of({{"w", {2}}}, sgd, {}, settles), sgd, "");
  };
  EXPECT_NE(with(true), with(false));
}

TEST(OfferedGradients, AParameterIsPresentOnceAnyPassHadAGradientForIt) {
  offered_gradients all{2, 6, gradient_use::summed, 6};
  std::vector<float> gradient{1, 2};
  auto offer = [&](bool first, bool second) {
    std::vector<float> present{first ? 1.0F : 0, 0, 0, second ? 1.0F : 0, 0, 0};
    (void)all.add(std::array{offered_tensor{gradient.data(), 2}, offered_tensor{present.data(), 6}},
                  1, 1, 0);
  };
  auto taken = [&] {
    std::vector<float> out(8);
    all.take_mean(out);
    return std::pair{out[2], out[5]};
  };
  offer(true, false);
  offer(false, false);
  EXPECT_EQ(taken(), (std::pair{1.0F, 0.0F}));
  offer(false, true);
  EXPECT_EQ(taken(), (std::pair{0.0F, 1.0F})) << "of the passes before only";
}

TEST(Counters, TakeTheLargerNumberUnlessTheLargestWasTheirOwn) {
  auto number = [](double x) {
    std::vector<float> out(exact_values);
    write_exact(x, std::span{out}.first<exact_values>());
    return out;
  };
  auto after = [&](double now, double largest, double contributed) {
    auto values = number(now);
    change_values(values, number(largest), number(contributed), change_rule::largest);
    return *read_exact(std::span<const float>{values}.first<exact_values>());
  };
  EXPECT_EQ(after(5, 9, 4), 9);
  EXPECT_EQ(after(12, 9, 4), 12) << "it has counted on meanwhile";
  EXPECT_EQ(after(0, 9, 9), 0) << "it has begun anew since";
}

} // namespace
} // namespace waggle
