#include <algorithm>

#include "trainer/training_model.hpp"

namespace waggle {

namespace {

/// Samples of one forward pass: few enough that a stopping peer does not wait for it.
constexpr std::uint64_t batch_max = 256;

class held_out_evaluator final : public evaluator {
public:
  held_out_evaluator(const learner_config& config, torch::Device device,
                     std::shared_ptr<training_model> model, std::shared_ptr<const sample_data> data)
    : window_(window_of(data->shape(), static_cast<std::size_t>(config.context))), device_(device),
      model_(std::move(model)), data_(std::move(data)) {
    model_->to(device_);
    model_->train(false);
  }

  result<evaluation> measure(std::span<const float> weights,
                             const std::atomic<bool>& stop) override {
    torch::NoGradGuard guard;
    load_weights(*model_, weights);
    window_grid grid{*data_, window_};
    evaluation out;
    double loss = 0;
    std::uint64_t predictions = 0;
    std::uint64_t right = 0;
    bool shows = true;
    while (out.samples < grid.count()) {
      if (stop)
        return failure{ec::shutting_down, "the evaluation was stopped"};
      auto count = std::min(batch_max, grid.count() - out.samples);
      std::vector<window_place> places;
      while (places.size() < count)
        places.push_back(grid.at(out.samples + places.size()));
      auto samples = read_windows(*data_, window_, places);
      if (!samples)
        return samples.error();
      auto found = model_->measure(
        batch_of(*samples, static_cast<std::int64_t>(count), data_->shape(), device_));
      loss += found.loss * static_cast<double>(found.predictions);
      predictions += found.predictions;
      right += found.right.value_or(0);
      shows = shows && found.right;
      out.samples += count;
    }
    out.loss = loss / static_cast<double>(predictions);
    if (shows)
      out.accuracy = static_cast<double>(right) / static_cast<double>(predictions);
    return out;
  }

private:
  std::size_t window_;
  torch::Device device_;
  std::shared_ptr<training_model> model_;
  std::shared_ptr<const sample_data> data_;
};

} // namespace

result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config) {
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config, data_role::evaluation);
  if (!data)
    return data.error();
  auto model = make_training_model(config, (*data)->shape());
  if (!model)
    return model.error();
  return std::unique_ptr<evaluator>{
    std::make_unique<held_out_evaluator>(config, *device, std::move(*model), *data)};
}

} // namespace waggle
