// This file is long: it is one model's learner, whose passes and updates share its flat tensors.

#include "trainer/torch_learner.hpp"

#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include <torch/torch.h>

#include "runtime/config/options.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/data/line_blocks.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/state_schema.hpp"
#include "trainer/autocast.hpp"
#include "trainer/buffer_values.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/gradient_hooks.hpp"
#include "trainer/gradient_sum.hpp"
#include "trainer/host_staging.hpp"
#include "trainer/parameter_copies.hpp"
#include "trainer/replicas.hpp"
#include "trainer/script_model.hpp"
#include "trainer/training_model.hpp"
#include "trainer/updated_tensors.hpp"

namespace waggle {

namespace {

class torch_learner final : public learner {
public:
  /// `models`: one for each replica.
  torch_learner(const learner_config& config, const std::vector<torch::Device>& devices,
                std::vector<std::shared_ptr<training_model>> models,
                std::shared_ptr<const sample_data> data, std::shared_ptr<loss_scaler> scale)
    : config_(config), device_(devices.front()), staging_(device_), model_(models.front()),
      data_(data), grid_(*data, drawn_window_of(*data, static_cast<std::size_t>(config.context))),
      sampler_(data, drawn_window_of(*data, static_cast<std::size_t>(config.context)),
               random_source{config.data_seed}),
      scale_(std::move(scale)) {
    model_->to(device_);
    parameters_.emplace(flatten(*model_, {}, {}), config_.offload_optimizer);
    for (const auto& item : model_->parameters())
      trained_.push_back(item.second);
    hooks_.emplace(trained_);
    tensors_ = name_tensors();
    sum_ =
      std::make_unique<gradient_sum>(trained_, config_.reuse_gradient_buffers, tensors_.numbers());
    keep_buffers();
    optimizer_ = updated_tensors::of_flat(tensors_, parameters_->master(), config_.optimizer);
    schema_ = schema_of(tensors_, config_.optimizer, function_of(config_.model, config_));
    for (std::int64_t i = 1; i < config_.replicas; ++i)
      others_.push_back(
        std::make_unique<replica>(config_, devices[static_cast<std::size_t>(i) % devices.size()],
                                  models[static_cast<std::size_t>(i)], parameters_->working()));
  }

  [[nodiscard]] learner_abilities abilities() const override {
    return {.resumes = true,
            .steps_locally = true,
            .copies_during_passes = true,
            .passes_beside_updates = config_.offload_optimizer,
            .adds_in_place = config_.reuse_gradient_buffers};
  }
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return schema_; }

  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    sum_->use_vectors(std::move(vectors));
  }

  micro_step accumulate() override {
    return data_->in_blocks() ? pass_over_blocks() : pass(nullptr);
  }
  micro_step accumulate_in_buckets(const early_gradient& when) override {
    if (data_->in_blocks())
      return pass_over_blocks();
    // On a GPU each copy to the host would wait for the pass, and the pass for the copy.
    bool can = device_.is_cpu() && others_.empty() && tensors_.buffer_count() == 0;
    return pass(can ? &when : nullptr);
  }

  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    if (tensors_.buffer_count() == 0 && room == 0)
      if (auto mean = sum_->take_vector())
        return *std::move(mean);
    auto out = vectors.take(gradient_count() + room);
    auto samples = sum_->take_mean(std::span{*out}.first(parameter_count()));
    if (auto terms = own_terms(); terms.numbers_of_each > 0)
      terms.write(std::span{*out}.subspan(parameter_count()
                                            + static_cast<std::size_t>(tensors_.buffer_count()),
                                          static_cast<std::size_t>(tensors_.term_count())));
    std::lock_guard lock{buffering_};
    std::copy(buffers_.begin(), buffers_.end(),
              out->begin() + static_cast<std::ptrdiff_t>(parameter_count()));
    return {std::move(out), samples, kept_merges_};
  }
  std::uint64_t drop_gradient() override { return sum_->drop(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return sum_->samples(); }

  void settle(std::span<const float> terms) override {
    optimizer_->settle(update_terms::read(terms, trained_.size(), tensors_.numbers()));
  }
  void apply(std::span<const float> gradient, double lr) override {
    torch::NoGradGuard guard;
    std::lock_guard lock{values_};
    step(view_of(gradient), lr);
  }

  void step_locally(double lr) override {
    torch::NoGradGuard guard;
    auto mean = sum_->take_mean();
    if (!mean.defined())
      return;
    std::lock_guard lock{values_};
    optimizer_->settle(own_terms());
    step(mean, lr);
  }

  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    learner::merge_buffers(mean, contributed);
    std::lock_guard lock{buffering_};
    ++merges_;
  }
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    if (parameters_->master().is_cpu()) { // where they are, without copies
      std::lock_guard lock{values_};
      parameters_->change([&](const torch::Tensor&) {
        change_tensors(tensors_, which, mean, snapshot, [this](std::size_t i, auto change) {
          if (is_buffer(i)) {
            float_vector copy(static_cast<std::size_t>(tensors_[i].elements()));
            read_tensor(i, copy);
            change(copy);
            return write_buffer(model_buffers_[i - first_buffer_].second, copy);
          }
          auto values = optimizer_->tensor(i);
          change({values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
        });
      });
      ++changes_;
    } else {
      learner::add_change(which, mean, snapshot);
    }
    keep_buffers();
  }
  std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                            std::span<float> out) const override {
    std::lock_guard lock{values_};
    for (auto i : which) {
      auto length = static_cast<std::size_t>(tensors_[i].elements());
      if (is_buffer(i)) { // a pass may be changing it
        std::lock_guard kept{buffering_};
        auto from = buffers_.begin() + static_cast<std::ptrdiff_t>(place_of_buffer(i));
        std::copy_n(from, length, out.begin());
      } else {
        read_tensor(i, out.first(length));
      }
      out = out.subspan(length);
    }
    return changes_;
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    torch::NoGradGuard guard;
    if (is_buffer(which))
      return read_buffer(model_buffers_[which - first_buffer_].second, out);
    staging_.to_host(optimizer_->tensor(which), view_of(out));
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    if (is_buffer(which))
      return {};
    auto values = optimizer_->tensor(which);
    if (!values.is_cpu() || !values.is_contiguous())
      return {};
    return {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    torch::NoGradGuard guard;
    if (is_buffer(which))
      return write_buffer(model_buffers_[which - first_buffer_].second, values);
    parameters_->change([&](const torch::Tensor&) {
      staging_.to_device(view_of(values), optimizer_->tensor(which));
    });
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override {
    return optimizer_->optimizer_steps();
  }
  /// Ends a load, too, which has written the buffers.
  void set_optimizer_steps(std::uint64_t steps) override {
    optimizer_->set_optimizer_steps(steps);
    keep_buffers();
  }

  [[nodiscard]] std::uint64_t rounding() const override { return optimizer_->rounding(); }

  [[nodiscard]] std::string position() const override { return text_of(sum_->position()); }
  [[nodiscard]] std::string taken_position() const override {
    return text_of(sum_->taken_position());
  }
  status load_position(std::string_view position) override {
    byte_reader in{position};
    auto of = in.get<std::uint64_t>();
    auto drawn = in.get<std::uint64_t>();
    if (!in.ok() || in.left() > 0 || of != sampler_.fingerprint())
      return failure{ec::malformed, "its position is one in other --data, or of another --seed"};
    sampler_.continue_after(drawn);
    sum_->load_position(drawn);
    return done{};
  }
  [[nodiscard]] partial_gradient copy_gradient() const override { return sum_->copy(); }
  status load_gradient(const partial_gradient& partial) override { return sum_->load(partial); }

private:
  /// Replicas draw one after another from the same data, and their gradients are added in this
  /// order: the sum has the bits of one replica that makes all these passes.
  micro_step pass(const early_gradient* when) {
    parameters_->refresh();
    auto batch = config_.micro_batch;
    auto drawn = sampler_.drawn();
    std::vector<waggle::batch> drawn_samples;
    for (std::size_t i = 0; i <= others_.size(); ++i) {
      auto next = config_.draws
                    ? dealt_batch(batch)
                    : next_batch(sampler_, batch, i == 0 ? device_ : others_[i - 1]->device());
      if (!next)
        return {.why = next.error()};
      drawn_samples.push_back(*std::move(next));
    }
    auto samples = static_cast<std::uint64_t>(batch);
    sum_->will_draw(drawn += samples);
    auto scale = sum_->begin_pass(scale_ ? scale_->scale() : 1);
    for (std::size_t i = 0; i < others_.size(); ++i)
      others_[i]->begin(drawn_samples[i + 1], scale);
    auto loss = loss_of(drawn_samples.front());
    hooks_->listen([this](std::size_t parameter) { sum_->computed(parameter); });
    if (when != nullptr && std::isfinite(loss.item<double>()))
      offer_when_due(*when, samples);
    (scale == 1 ? loss : loss * scale).backward();
    hooks_->listen({});
    micro_step step{loss.item<double>(), samples * drawn_samples.size()};
    bool finite = std::isfinite(step.loss);
    std::vector<replica::pass> passes;
    for (auto& other : others_) {
      passes.push_back(other->end());
      step.loss += passes.back().loss;
      finite = finite && passes.back().finite;
    }
    step.loss /= static_cast<double>(drawn_samples.size());
    if (!finite) // none of these samples is drawn again
      sum_->will_draw(sampler_.drawn());
    auto outcome = sum_->end_pass(samples, finite);
    step.lost = outcome.lost;
    for (std::size_t i = 0; outcome.finite && i < passes.size(); ++i) {
      sum_->will_draw(drawn += samples);
      (void)sum_->begin_pass(scale);
      sum_->add(passes[i].gradient);
      for (auto parameter : passes[i].present)
        sum_->computed_elsewhere(parameter);
      outcome = sum_->end_pass(samples, true);
      step.lost += outcome.lost;
    }
    step.finite = outcome.finite;
    step.taken = outcome.taken;
    keep_buffers();
    if (scale_)
      scale_->note(step, scale, std::isfinite(step.loss));
    return step;
  }

  /// Over blocks that weigh as a batch, or more. Their gradient adds up in parts of a batch each. A
  /// block without text weighs as one sample without a gradient.
  micro_step pass_over_blocks() {
    parameters_->refresh();
    auto window = window_of(data_->shape(), static_cast<std::size_t>(config_.context));
    auto batch = static_cast<std::size_t>(config_.micro_batch);
    auto drawn = read_blocks(*data_, window, batch, [this]() -> std::optional<std::uint64_t> {
      if (!config_.draws)
        return sampler_.next().at;
      auto number = config_.draws->draw(1);
      return number.empty() ? std::nullopt : std::optional{number.front()};
    });
    if (!drawn)
      return {.why = drawn.error()};
    micro_step step{std::numeric_limits<double>::quiet_NaN(), // without text, none
                    std::max(drawn->blocks, std::min(drawn->weight, config_.pass_weight_max))};
    step.left_out = std::move(drawn->left_out);
    if (config_.draws && step.samples > 0) {
      config_.draws->weigh(step.samples, drawn->blocks);
      if (!config_.draws->offer(step.samples))
        step.samples = 0; // another member has them now
    }
    if (step.samples == 0)
      return step;
    sum_->will_draw(sampler_.drawn());
    auto scale = sum_->begin_pass(scale_ ? scale_->scale() : 1);
    hooks_->listen([this](std::size_t parameter) { sum_->computed(parameter); });
    double losses = 0;
    for (auto left = std::span{drawn->windows}; !left.empty();) {
      auto part = left.first(std::min(left.size(), batch * window));
      left = left.subspan(part.size());
      auto count = static_cast<double>(part.size()) / static_cast<double>(window);
      auto loss =
        loss_of(batch_of(part, static_cast<std::int64_t>(count), data_->shape(), device_));
      (loss * (scale * count / static_cast<double>(drawn->weight))).backward();
      losses += loss.item<double>() * count;
    }
    hooks_->listen({});
    if (!drawn->windows.empty())
      step.loss = losses * static_cast<double>(window) / static_cast<double>(drawn->windows.size());
    auto outcome = sum_->end_pass(step.samples, drawn->windows.empty() || std::isfinite(step.loss));
    step.finite = outcome.finite;
    step.lost = outcome.lost;
    step.taken = outcome.taken;
    keep_buffers();
    if (scale_)
      scale_->note(step, scale, std::isfinite(step.loss));
    return step;
  }

  /// In the backward pass that begins now.
  void offer_when_due(const early_gradient& when, std::uint64_t samples) {
    hooks_->listen([this, when, samples, asks = true](std::size_t parameter) mutable {
      sum_->computed(parameter);
      if (!asks || !when.due())
        return;
      asks = false;
      if (sum_->offer(samples))
        when.offered();
    });
  }

  /// Of the samples that this peer may draw. `size`: the most; becomes how many there are.
  result<batch> dealt_batch(std::int64_t& size) {
    std::vector<window_place> places;
    for (auto number : config_.draws->draw(static_cast<std::uint64_t>(size)))
      places.push_back(grid_.at(number));
    WAGGLE_CHECK(!places.empty(), "a pass without samples");
    size = static_cast<std::int64_t>(places.size());
    WAGGLE_TRY(samples, data_->windows(sampler_.window(), places));
    return batch_of(*samples, size, data_->shape(), device_);
  }

  [[nodiscard]] std::string text_of(std::uint64_t drawn) const {
    return byte_writer{}.put(sampler_.fingerprint()).put(drawn).take();
  }

  void step(const torch::Tensor& gradient, double lr) {
    parameters_->change([&](const torch::Tensor& master) {
      auto there = master.is_cpu() ? staging_.to_host(gradient) : staging_.to_device(gradient);
      optimizer_->apply(there, lr);
    });
  }

  /// Of the gradient that was taken last. The rate is the run's, so there are no wishes.
  [[nodiscard]] update_terms own_terms() const {
    update_terms terms{trained_.size(), tensors_.numbers()};
    terms.present = sum_->taken_present();
    return terms;
  }

  [[nodiscard]] torch::Tensor loss_of(const batch& samples) {
    autocast scope{config_.format, device_};
    return model_->loss(samples);
  }

  // -- buffers

  [[nodiscard]] bool is_buffer(std::size_t which) const { return which >= first_buffer_; }
  /// Of its first value, among those of all buffers.
  [[nodiscard]] std::size_t place_of_buffer(std::size_t which) const {
    return static_cast<std::size_t>(tensors_.offset(which) - tensors_.offset(first_buffer_));
  }

  /// After a pass, or a change: rounds take them while the next pass changes the tensors. Values
  /// that are not finite are the last ones that were.
  void keep_buffers() {
    if (tensors_.buffer_count() == 0)
      return;
    torch::NoGradGuard guard;
    model_buffers_ = model_->buffers(); // a pass may have put other tensors in their places
    float_vector now(static_cast<std::size_t>(tensors_.buffer_count()));
    for (auto i = first_buffer_; i < first_buffer_ + model_buffers_.size(); ++i)
      read_tensor(i, std::span{now}.subspan(place_of_buffer(i),
                                            static_cast<std::size_t>(tensors_[i].elements())));
    std::lock_guard lock{buffering_};
    buffers_.resize(now.size());
    for (std::size_t i = 0; i < now.size(); ++i)
      if (std::isfinite(now[i]))
        buffers_[i] = now[i];
    kept_merges_ = merges_;
  }

  /// The parameters under LibTorch's names, followed by the statistics of the optimizer, and the
  /// buffers.
  state_table name_tensors() {
    std::vector<state_tensor> parameters;
    for (const auto& [name, value] : model_->parameters())
      parameters.push_back({name, {value.sizes().begin(), value.sizes().end()}});
    model_buffers_ = model_->buffers();
    std::vector<state_tensor> buffers;
    for (const auto& [name, value] : model_buffers_)
      buffers.push_back(buffer_row(name, value));
    auto table =
      table_of(std::move(parameters), config_.optimizer, std::move(buffers), config_.settles);
    first_buffer_ = table.size() - model_buffers_.size();
    return table;
  }

  learner_config config_;
  torch::Device device_;
  mutable host_staging staging_; // for gradients of updates, and states
  std::shared_ptr<training_model> model_;
  std::shared_ptr<const sample_data> data_;
  window_grid grid_;
  window_sampler sampler_;
  const std::shared_ptr<loss_scaler> scale_; // of the loss; null: it is not scaled
  std::optional<parameter_copies> parameters_;
  std::vector<torch::Tensor> trained_;
  std::unique_ptr<gradient_sum> sum_;
  std::optional<gradient_hooks> hooks_;
  std::unique_ptr<updated_tensors> optimizer_;
  state_table tensors_;
  digest schema_;
  training_model::named_tensors model_buffers_; // the last rows of the table
  std::size_t first_buffer_ = 0;                // the number of the first of these rows
  mutable std::mutex buffering_;
  // -- guarded by buffering_
  float_vector buffers_;          // after the last pass or change
  std::uint64_t merges_ = 0;      // of all merge_buffers
  std::uint64_t kept_merges_ = 0; // that buffers_ contains

  std::vector<std::unique_ptr<replica>> others_; // last: their threads read the parameters
};

status check_buffers(const learner_config& config, const training_model& model) {
  auto buffers = model.buffers();
  if (buffers.empty() || !config.offload_optimizer)
    return done{};
  return failure{ec::bad_config, "--offload-optimizer and --delay-optimizer-step are for models "
                                 "without running statistics, which passes change while an update "
                                 "would; "
                                   + config.model + " has " + buffers.front().first
                                   + ": leave them out"};
}

} // namespace

status check_learner_config(const learner_config& config) {
  auto in = open_inputs(config);
  return in ? check_training_model(config, in->data->shape()) : in.error();
}

result<std::unique_ptr<learner>> make_torch_learner(const learner_config& config) {
  WAGGLE_TRY(in, open_inputs(config));
  if (config.draws) {
    auto window = drawn_window_of(*in->data, static_cast<std::size_t>(config.context));
    if (window_grid{*in->data, window}.count() != config.draws->ledger().samples())
      return failure{ec::bad_config,
                     "--data " + config.data
                       + " has another number of samples than when they were counted"};
  }
  set_threads(config.threads);
  try {
    std::vector<std::shared_ptr<training_model>> models;
    for (std::int64_t i = 0; i < config.replicas; ++i) {
      WAGGLE_TRY(model, make_training_model(config, in->data->shape()));
      WAGGLE_TRY(fits, check_buffers(config, **model));
      (*model)->train(true);
      models.push_back(std::move(*model));
    }
    auto rule = config.scale_rule();
    auto scale = rule ? std::make_shared<loss_scaler>(*rule) : nullptr;
    auto make = [&]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{
        std::make_unique<torch_learner>(config, in->devices, std::move(models), in->data, scale)};
    };
    return with_loss_scale(make, scale)();
  } catch (const c10::Error& e) {
    return failure{ec::bad_config,
                   "LibTorch cannot make the model: " + std::string{e.what_without_backtrace()}};
  }
}

} // namespace waggle
