#include <algorithm>

#include "runtime/core/try.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

namespace {

/// Samples of one forward pass: few enough that a stopping peer does not wait for it.
constexpr std::uint64_t batch_max = 256;

class held_out_evaluator final : public evaluator {
public:
  held_out_evaluator(const learner_config& config, torch::Device device,
                     std::shared_ptr<training_model> model, std::shared_ptr<const sample_data> data)
    : window_(window_of(data->shape(), static_cast<std::size_t>(config.context))),
      grid_(*data, drawn_window_of(*data, static_cast<std::size_t>(config.context))),
      device_(device), model_(std::move(model)), data_(std::move(data)) {
    model_->to(device_);
    model_->train(false);
  }

  result<evaluation> measure(std::span<const float> weights,
                             const std::atomic<bool>& stop) override {
    torch::NoGradGuard guard;
    load_weights(*model_, weights);
    evaluation out;
    double loss = 0;
    std::uint64_t predictions = 0;
    std::uint64_t right = 0;
    bool shows = true;
    for (std::uint64_t next = 0; next < grid_.count();) {
      std::vector<window_place> places;
      for (auto most = data_->in_blocks() ? 1 : batch_max;
           places.size() < most && next < grid_.count(); ++next)
        places.push_back(grid_.at(next));
      WAGGLE_TRY(samples, data_->windows(window_, places));
      for (auto left = std::span{*samples}; !left.empty();) {
        if (stop)
          return failure{ec::shutting_down, "the evaluation was stopped"};
        auto bytes = window_ * data_->shape().item_bytes;
        auto part = left.first(std::min(left.size(), batch_max * bytes));
        left = left.subspan(part.size());
        auto count = part.size() / bytes;
        auto found = model_->measure(
          batch_of(part, static_cast<std::int64_t>(count), data_->shape(), device_));
        loss += found.loss * static_cast<double>(found.predictions);
        predictions += found.predictions;
        right += found.right.value_or(0);
        shows = shows && found.right;
        out.samples += count;
      }
    }
    if (predictions == 0)
      return failure{ec::bad_config, "--eval-data has no text"};
    out.loss = loss / static_cast<double>(predictions);
    if (shows)
      out.accuracy = static_cast<double>(right) / static_cast<double>(predictions);
    return out;
  }

private:
  std::size_t window_;
  window_grid grid_;
  torch::Device device_;
  std::shared_ptr<training_model> model_;
  std::shared_ptr<const sample_data> data_;
};

} // namespace

result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config) {
  WAGGLE_TRY(device, device_of(config.device));
  WAGGLE_TRY(data, open_data(config, data_role::evaluation));
  WAGGLE_TRY(model, make_training_model(config, (*data)->shape()));
  return std::unique_ptr<evaluator>{
    std::make_unique<held_out_evaluator>(config, *device, std::move(*model), *data)};
}

} // namespace waggle
