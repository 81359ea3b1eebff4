#include "trainer/torch_learner.hpp"

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include <torch/torch.h>

#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/flat_optimizer.hpp"
#include "trainer/models.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLTL01";
/// Which block of a state, if there are that many: parameters, first moment, second moment.
constexpr std::size_t second_moment = 2;
/// More steps than any run has; bias correction still counts them exactly in a double.
constexpr std::uint64_t steps_max = std::uint64_t{1} << 53U;

class torch_learner final : public learner {
public:
  torch_learner(const learner_config& config, torch::Device device,
                std::shared_ptr<const byte_data> data)
    : config_(config), device_(device), model_(make_model(config)),
      sampler_(std::move(data), window_of(config), random_source{config.data_seed}) {
    flatten();
    optimizer_.emplace(config, flat_);
    accumulated_ = torch::zeros_like(flat_);
    schema_ = describe();
  }

  [[nodiscard]] std::size_t parameter_count() const override {
    return static_cast<std::size_t>(flat_.numel());
  }
  [[nodiscard]] digest schema() const override { return schema_; }

  micro_step accumulate() override {
    auto batch = config_.micro_batch;
    auto loss = model_->loss(next_windows(sampler_, batch, device_));
    gradient_.zero_();
    loss.backward();
    micro_step step{loss.item<double>(), static_cast<std::uint64_t>(batch), true};
    torch::NoGradGuard guard;
    // The sum is finite only if every value is (opposite infinities give NaN).
    step.finite = std::isfinite(step.loss) && std::isfinite(gradient_.sum().item<double>());
    if (step.finite) {
      std::lock_guard lock{accumulators_};
      accumulated_.add_(gradient_, static_cast<double>(batch));
      samples_.fetch_add(step.samples);
    }
    return step;
  }

  std::uint64_t take_mean_gradient(std::span<float> out) override {
    torch::NoGradGuard guard;
    std::lock_guard lock{accumulators_};
    auto samples = samples_.exchange(0);
    auto to = view_of(out);
    if (samples > 0) {
      to.copy_(accumulated_);
      to.div_(static_cast<double>(samples));
      accumulated_.zero_();
    } else {
      to.zero_();
    }
    return samples;
  }

  std::uint64_t drop_gradient() override {
    torch::NoGradGuard guard;
    std::lock_guard lock{accumulators_};
    auto samples = samples_.exchange(0);
    if (samples > 0)
      accumulated_.zero_();
    return samples;
  }

  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_.load(); }

  void apply(std::span<const float> gradient, double lr) override {
    torch::NoGradGuard guard;
    auto given = torch::from_blob(const_cast<float*>(gradient.data()),
                                  {static_cast<std::int64_t>(gradient.size())});
    optimizer_->step(flat_, given.to(device_), lr);
  }

  [[nodiscard]] digest parameters_digest() const override {
    auto host = flat_.to(torch::kCPU);
    return sha256(bytes_of(host));
  }

  [[nodiscard]] std::vector<std::byte> save_state(std::size_t headroom) const override {
    auto& statistics = optimizer_->statistics();
    byte_writer header;
    header.put_raw(magic)
      .put(schema_)
      .put(static_cast<std::uint64_t>(parameter_count()))
      .put(static_cast<std::uint64_t>(statistics.size()))
      .put(optimizer_->steps());
    auto block = parameter_count() * sizeof(float);
    std::vector<std::byte> image(headroom + header.text().size() + block * (1 + statistics.size()));
    auto* out = image.data() + headroom;
    auto append = [&out](byte_span bytes) {
      std::memcpy(out, bytes.data(), bytes.size());
      out += bytes.size();
    };
    append(as_byte_span(header.text()));
    append(bytes_of(flat_.to(torch::kCPU)));
    for (const auto& s : statistics)
      append(bytes_of(s.to(torch::kCPU)));
    return image;
  }

  [[nodiscard]] byte_span parameters_in(byte_span state) const override {
    constexpr auto header = magic.size() + sizeof(digest) + 3 * sizeof(std::uint64_t);
    return state.subspan(header, parameter_count() * sizeof(float));
  }

  status load_state(byte_span state) override {
    byte_reader in{state};
    if (in.get_raw(magic.size()) != magic)
      return failure{ec::malformed, "this is no learner state"};
    if (in.get<digest>() != schema_)
      return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
    auto& statistics = optimizer_->statistics();
    auto block = parameter_count() * sizeof(float);
    auto values = in.get<std::uint64_t>();
    auto blocks = in.get<std::uint64_t>();
    auto steps = in.get<std::uint64_t>();
    if (!in.ok() || values != parameter_count() || blocks != statistics.size() || steps > steps_max
        || in.left() != block * (1 + statistics.size()))
      return failure{ec::malformed, "the learner state is cut off, or too long"};
    // Everything is checked before the first value changes.
    std::vector<torch::Tensor> fresh;
    for (std::size_t i = 0; i <= statistics.size(); ++i) {
      auto bytes = in.get_raw(block);
      auto tensor = torch::empty({flat_.numel()});
      std::memcpy(tensor.data_ptr<float>(), bytes.data(), block);
      if (!std::isfinite(tensor.sum().item<double>()))
        return failure{ec::non_finite, "the learner state holds NaN or infinite values"};
      if (i == second_moment && tensor.lt(0).any().item<bool>())
        return failure{ec::malformed, "the learner state holds negative second moments"};
      fresh.push_back(tensor);
    }
    torch::NoGradGuard guard;
    flat_.copy_(fresh[0]);
    for (std::size_t i = 0; i < statistics.size(); ++i)
      statistics[i].copy_(fresh[i + 1]);
    optimizer_->set_steps(steps);
    return done{};
  }

private:
  /// Makes every parameter, and its gradient, a view of one flat tensor.
  void flatten() {
    torch::NoGradGuard guard;
    model_->to(device_);
    std::int64_t total = 0;
    for (const auto& p : model_->parameters())
      total += p.numel();
    auto options = torch::TensorOptions{}.dtype(torch::kFloat32).device(device_);
    flat_ = torch::empty({total}, options);
    gradient_ = torch::zeros({total}, options);
    std::int64_t offset = 0;
    for (auto& p : model_->parameters()) {
      auto view = flat_.narrow(0, offset, p.numel()).view(p.sizes());
      view.copy_(p);
      p.set_data(view);
      p.mutable_grad() = gradient_.narrow(0, offset, p.numel()).view(p.sizes());
      offset += p.numel();
    }
  }

  [[nodiscard]] digest describe() const {
    sha256_stream hash;
    hash.add("waggle torch learner 1").add(config_.model).add("/").add(config_.optimizer);
    byte_writer numbers;
    numbers.put(config_.momentum).put(config_.beta1).put(config_.beta2).put(config_.epsilon);
    numbers.put(config_.weight_decay).put(config_.heads).put(config_.context);
    hash.add(numbers.text());
    for (const auto& item : model_->named_parameters()) {
      hash.add(item.key());
      for (auto size : item.value().sizes())
        hash.add("," + std::to_string(size));
    }
    return hash.finish();
  }

  static torch::Tensor view_of(std::span<float> values) {
    return torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())});
  }
  static byte_span bytes_of(const torch::Tensor& host) {
    return {reinterpret_cast<const std::byte*>(host.data_ptr<float>()),
            static_cast<std::size_t>(host.numel()) * sizeof(float)};
  }

  learner_config config_;
  torch::Device device_;
  std::shared_ptr<byte_model> model_;
  window_sampler sampler_;
  torch::Tensor flat_;
  torch::Tensor gradient_;
  torch::Tensor accumulated_; // Σ b·∇
  mutable std::optional<flat_optimizer> optimizer_;
  std::mutex accumulators_; // of accumulated_
  std::atomic<std::uint64_t> samples_{0};
  digest schema_;
};

} // namespace

status check_learner_config(const learner_config& config) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  if (config.model != "char-gpt" && config.model != "mlp")
    return bad("--model " + config.model + " is unknown: use char-gpt or mlp");
  if (config.optimizer != "sgd" && config.optimizer != "adam" && config.optimizer != "adamw")
    return bad("--optimizer " + config.optimizer + " is unknown: use sgd, adam or adamw");
  for (auto [name, value] : {std::pair{"--layers", config.layers},
                             {"--width", config.width},
                             {"--heads", config.heads},
                             {"--context", config.context},
                             {"--micro-batch", config.micro_batch},
                             {"--threads", static_cast<std::int64_t>(config.threads)}})
    if (value < 1)
      return bad(std::string{name} + " is " + std::to_string(value) + ": it must be at least 1");
  if (config.model == "char-gpt" && config.width % config.heads != 0)
    return bad("--heads " + std::to_string(config.heads) + " must divide --width "
               + std::to_string(config.width));
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  return done{};
}

result<std::unique_ptr<learner>> make_torch_learner(const learner_config& config) {
  if (auto usable = check_learner_config(config); !usable)
    return usable.error();
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  set_threads(config.threads);
  try {
    return std::unique_ptr<learner>{std::make_unique<torch_learner>(config, *device, *data)};
  } catch (const c10::Error& e) {
    return failure{ec::bad_config,
                   "LibTorch cannot make the model: " + std::string{e.what_without_backtrace()}};
  }
}

} // namespace waggle
