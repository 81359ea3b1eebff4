#include "runtime/training/begun_from.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/training/strategy.hpp"
#include "runtime/training/trained_model.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

class BegunFrom : public ::testing::Test {
protected:
  BegunFrom() {
    folder_ = std::filesystem::temp_directory_path() / ("begun-from-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~BegunFrom() override { std::filesystem::remove_all(folder_); }

  static learner_factory toys(const toy_options& toy = {}) {
    return [toy]() -> result<std::unique_ptr<learner>> { return {make_toy_learner(toy)}; };
  }

  /// A checkpoint of a run that has trained with `strategy`.
  std::string checkpoint(const char* strategy, const toy_options& toy = {}) {
    std::shared_ptr<learner> learns = std::move(*strategy_choice{strategy}.learners(toys(toy))());
    trained_model model{learns};
    learns->accumulate();
    std::vector<float> gradient(learns->gradient_count(), 0.5F);
    model.step(gradient, 0.1, {});
    parameters_ = tensor(*learns);
    auto sealed = seal(*model.copy_state(make_memory_store()));
    auto bytes = read_all(**sealed);
    auto file = (folder_ / "run.wgl").string();
    std::ofstream{file, std::ios::binary} << as_string_view(bytes->view());
    return file;
  }

  static std::vector<float> tensor(const learner& model, std::size_t which = 0) {
    std::vector<float> values(model.tensors()[which].elements());
    model.read_tensor(which, values);
    return values;
  }

  std::string refusal(const std::string& file, const toy_options& toy = {}) {
    auto made = begun_from(toys(toy), file, make_system_disk())();
    if (made)
      return "";
    EXPECT_EQ(made.error().code, ec::bad_config);
    return made.error().detail;
  }

  std::filesystem::path folder_;
  std::vector<float> parameters_; // of the last checkpoint
};

TEST_F(BegunFrom, TakesTheParametersOfAnyStrategyIntoAnyOther) {
  for (const char* before : {"collaborative", "diloco", "daso", "local-updates"})
    for (const char* after : {"collaborative", "diloco", "daso"}) {
      auto made = strategy_choice{after}.learners(
        begun_from(toys({.adam = true}), checkpoint(before), make_system_disk()))();
      EXPECT_EQ(tensor(**made), parameters_) << before << ", " << after;
      EXPECT_NE(tensor(**made), tensor(*make_toy_learner({}))) << "not those of a new run";
      EXPECT_EQ((*made)->optimizer_steps(), 0U);
      EXPECT_EQ(trained_model{std::shared_ptr<learner>{std::move(*made)}}.epoch(), epoch_id{});
    }
}

TEST_F(BegunFrom, RefusesAnotherModelAndWhatIsNoCheckpoint) {
  auto file = checkpoint("collaborative");
  EXPECT_EQ(refusal(file), "");
  EXPECT_THAT(refusal(file, {.parameters = 9}), HasSubstr("a model with other parameters"));
  EXPECT_NE(refusal(file, {.buffer = true}), "");
  EXPECT_THAT(refusal((folder_ / "none").string()), HasSubstr("--from "));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
  EXPECT_THAT(refusal(file), HasSubstr("--from "));
}

} // namespace
} // namespace waggle::testing
