// Ten peers train one logistic regression; three of them are Byzantine. Measures the loss with each
// aggregator.
//
// Byzantine peers that stay within the spread of the honest ones, or push them all to one side,
// leave an error that is a part of that spread: no aggregator can distinguish it from noise.
// Batches are therefore as large as one would choose them where attacks are expected.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/random.hpp"

namespace waggle {
namespace {

constexpr std::size_t peers = 10;
constexpr std::size_t liars = 3; // the members 1, 4 and 7
constexpr std::size_t features = 24;
constexpr std::size_t samples_each = 2'000;
constexpr std::size_t batch = 500;
constexpr std::size_t rounds = 150;
constexpr double learning_rate = 0.5;
constexpr std::size_t parts = 3; // each has a reducer of its own
constexpr std::uint64_t seed = 11;

bool lies(std::size_t member) {
  return member % 3 == 1 && member < 3 * liars;
}

double normal(random_source& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i)
    sum += random.unit();
  return sum;
}

using vector = std::vector<float>;

struct sample {
  vector x;
  double y; // 0 or 1; for some samples the less probable one
};

struct world {
  std::vector<std::vector<sample>> shards{peers};

  world() {
    random_source random{seed};
    std::vector<double> truth(features);
    for (auto& t : truth)
      t = normal(random) * 0.5;
    for (auto& shard : shards)
      for (std::size_t s = 0; s < samples_each; ++s) {
        sample one{vector(features), 0};
        double score = 0;
        for (std::size_t i = 0; i < features; ++i) {
          one.x[i] = static_cast<float>(normal(random));
          score += truth[i] * static_cast<double>(one.x[i]);
        }
        one.y = random.unit() < 1 / (1 + std::exp(-score)) ? 1 : 0;
        shard.push_back(std::move(one));
      }
  }

  static double score(const sample& s, const vector& weights) {
    double sum = 0;
    for (std::size_t i = 0; i < features; ++i)
      sum += static_cast<double>(s.x[i]) * static_cast<double>(weights[i]);
    return sum;
  }

  [[nodiscard]] vector gradient(std::size_t member, const vector& weights,
                                random_source& random) const {
    std::vector<double> sum(features, 0.0);
    for (std::size_t b = 0; b < batch; ++b) {
      const auto& s = shards[member][random.below(samples_each)];
      auto error = 1 / (1 + std::exp(-score(s, weights))) - s.y;
      for (std::size_t i = 0; i < features; ++i)
        sum[i] += error * static_cast<double>(s.x[i]) / batch;
    }
    return {sum.begin(), sum.end()};
  }

  /// Mean loss over the data of all peers; infinite if the training diverged.
  [[nodiscard]] double loss(const vector& weights) const {
    double sum = 0;
    for (const auto& shard : shards)
      for (const auto& s : shard) {
        auto z = score(s, weights);
        sum += std::max(z, 0.0) - s.y * z + std::log1p(std::exp(-std::abs(z)));
      }
    auto mean = sum / (peers * samples_each);
    return std::isfinite(mean) ? mean : std::numeric_limits<double>::infinity();
  }
};

/// Replaces the contributions of the Byzantine peers, which know all the others.
using attack = std::function<void(std::vector<vector>& said, random_source& random)>;

struct training {
  double loss = 0;
  std::size_t exclusions = 0; // per part and round
  bool only_liars_excluded = true;
};

training train(const world& world, const aggregation& how, const attack& lie,
               codec_id codec = codec_id::none, bool without_liars = false) {
  random_source random{seed + 1};
  random_source liar_random{seed + 2};
  training out;
  vector weights(features, 0.0F);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<vector> said;
    for (std::size_t i = 0; i < peers; ++i)
      said.push_back(world.gradient(i, weights, random));
    if (lie)
      lie(said, liar_random);
    vector step(features);
    auto size = features / parts;
    for (std::size_t p = 0; p < parts; ++p) {
      part_reducer reducer{codec, static_cast<std::uint32_t>(size), how};
      for (std::size_t i = 0; i < peers; ++i) {
        if (without_liars && lies(i))
          continue;
        auto values = std::span{said[i]}.subspan(p * size, size);
        std::vector<std::byte> bytes(encoded_size(codec, size));
        encode(codec, values, bytes);
        EXPECT_TRUE(reducer.add(i, batch, copy_to_payload(bytes)));
      }
      // As in a round: reduces again without the excluded contributors.
      auto contributors = reducer.present();
      auto values = std::span{step}.subspan(p * size, size);
      for (auto outcome = reducer.reduce(contributors, values); !outcome.excluded.empty();
           outcome = reducer.reduce(contributors, values)) {
        for (const auto& e : outcome.excluded) {
          contributors.erase(e.member);
          ++out.exclusions;
          out.only_liars_excluded = out.only_liars_excluded && lies(e.member);
        }
      }
    }
    for (std::size_t i = 0; i < features; ++i)
      weights[i] -= static_cast<float>(learning_rate) * step[i];
  }
  out.loss = world.loss(weights);
  return out;
}

// -- attacks --------------------------------------------------------------------------------------

attack times(float factor) {
  return [factor](std::vector<vector>& said, random_source&) {
    for (std::size_t i = 0; i < peers; ++i)
      if (lies(i))
        for (auto& x : said[i])
          x *= factor;
  };
}

void noise(std::vector<vector>& said, random_source& random) {
  for (std::size_t i = 0; i < peers; ++i)
    if (lies(i))
      for (auto& x : said[i])
        x = static_cast<float>(10 * normal(random));
}

void not_numbers(std::vector<vector>& said, random_source& random) {
  for (std::size_t i = 0; i < peers; ++i)
    if (lies(i))
      for (std::size_t p = 0; p < parts; ++p)
        said[i][p * features / parts + random.below(features / parts)] =
          i == 4 ? std::numeric_limits<float>::infinity() : std::nanf("");
}

/// Mean and deviation of the honest contributions to value e.
std::pair<double, double> honest(const std::vector<vector>& said, std::size_t e) {
  double mean = 0;
  double square = 0;
  for (std::size_t i = 0; i < peers; ++i)
    if (!lies(i))
      mean += static_cast<double>(said[i][e]) / (peers - liars);
  for (std::size_t i = 0; i < peers; ++i)
    if (!lies(i))
      square += std::pow(static_cast<double>(said[i][e]) - mean, 2) / (peers - liars);
  return {mean, std::sqrt(square)};
}

/// All Byzantine peers send the same: the honest mean, moved by some of its deviations.
attack collude(double deviations) {
  return [deviations](std::vector<vector>& said, random_source&) {
    for (std::size_t e = 0; e < features; ++e) {
      auto [mean, deviation] = honest(said, e);
      for (std::size_t i = 0; i < peers; ++i)
        if (lies(i))
          said[i][e] = static_cast<float>(mean - deviations * deviation);
    }
  };
}

struct named_attack {
  const char* name;
  attack lie;
};

const std::vector<named_attack>& attacks() {
  static const std::vector<named_attack> all{
    {"sign flip", times(-1)},
    {"x 1000", times(1'000)},
    {"sign flip x 1000", times(-1'000)},
    {"x 1e12", times(1e12F)},
    {"NaN", not_numbers},
    {"noise", noise},
    {"a little is enough", collude(1)},
    {"colluding, far away", collude(30)},
  };
  return all;
}

constexpr aggregation robust[] = {{aggregator::trimmed_mean, liars},
                                  {aggregator::median, liars},
                                  {aggregator::centered_clip, liars},
                                  {aggregator::krum, liars},
                                  {aggregator::median_norm, liars}};

class Attack : public ::testing::Test {
protected:
  static void SetUpTestSuite() {
    swarm_ = std::make_unique<world>();
    clean_ = train(*swarm_, {}, nullptr, codec_id::none, true).loss;
  }
  static void TearDownTestSuite() { swarm_.reset(); }

  static std::unique_ptr<world> swarm_;
  static double clean_; // the loss of the seven honest peers alone with a mean
};
std::unique_ptr<world> Attack::swarm_;
double Attack::clean_ = 0;

TEST_F(Attack, TheProblemIsLearnedAndNotTrivially) {
  auto at_start = swarm_->loss(vector(features, 0.0F));
  EXPECT_NEAR(at_start, std::log(2.0), 1e-6);
  EXPECT_LT(clean_, 0.7 * at_start);
  EXPECT_GT(clean_, 0.2 * at_start);
}

TEST_F(Attack, RobustAggregatorsEndWithinFivePercentOfATrainingWithoutLiars) {
  for (const auto& how : robust)
    for (const auto& [name, lie] : attacks()) {
      auto ended = train(*swarm_, how, lie);
      std::cout << to_string(how.how) << ", " << name << ": " << ended.loss / clean_ << '\n';
      EXPECT_LT(ended.loss, 1.05 * clean_) << to_string(how.how) << ", " << name;
      EXPECT_TRUE(ended.only_liars_excluded) << to_string(how.how) << ", " << name;
    }
}

TEST_F(Attack, WithoutLiarsRobustAggregatorsLoseNothingToSpeakOf) {
  for (const auto& how : robust) {
    auto ended = train(*swarm_, how, nullptr);
    EXPECT_LT(ended.loss, 1.01 * clean_) << to_string(how.how);
    EXPECT_EQ(ended.exclusions, 0U);
  }
}

TEST_F(Attack, AMeanDoesNotSurviveWhatTheOthersDo) { // otherwise this suite would prove nothing
  for (const auto& [name, lie] : attacks()) {
    auto ended = train(*swarm_, {}, lie);
    std::cout << "mean, " << name << ": " << ended.loss / clean_ << '\n';
    auto is = std::string{name};
    if (is == "x 1000" || is == "sign flip x 1000" || is == "noise"
        || is == "colluding, far away") {
      EXPECT_GT(ended.loss, 1.2 * clean_) << name;
    }
  }
}

TEST_F(Attack, GuardsKeepImplausibleValuesOutOfAMean) {
  for (const auto& lie : {times(1e12F), attack{not_numbers}}) {
    auto ended = train(*swarm_, {}, lie);
    EXPECT_LT(ended.loss, 1.05 * clean_);
    EXPECT_GE(ended.exclusions, parts * liars) << "at least at the start";
    EXPECT_TRUE(ended.only_liars_excluded);
  }
}

TEST_F(Attack, RobustAggregatorsWorkOnEncodedParts) {
  for (auto codec : {codec_id::float16, codec_id::bfloat16, codec_id::blockwise8})
    for (const auto& how : robust)
      EXPECT_LT(train(*swarm_, how, times(-1'000), codec).loss, 1.05 * clean_)
        << to_string(how.how) << " " << to_string(codec);
}

} // namespace
} // namespace waggle
