#include "trainer/compute_setup.hpp"

#include <charconv>

#include <dlfcn.h>

#include "runtime/config/options.hpp"
#include "runtime/core/try.hpp"
#include "runtime/data/tokens.hpp"
#include "trainer/autocast.hpp"
#include "trainer/host_staging.hpp"

namespace waggle {

result<torch::Device> device_of(const std::string& name) {
  auto cuda = [](int index) -> result<torch::Device> {
    if (!torch::cuda::is_available())
      return failure{ec::bad_config,
                     "--device cuda: this machine, or this LibTorch, has no CUDA; use cpu"};
    if (index >= static_cast<int>(torch::cuda::device_count()))
      return failure{ec::bad_config, "--device cuda:" + std::to_string(index) + ": there are only "
                                       + std::to_string(torch::cuda::device_count()) + " devices"};
    return torch::Device{torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  };
  if (name == "cpu" || (name == "auto" && !torch::cuda::is_available()))
    return torch::Device{torch::kCPU};
  if (name == "auto" || name == "cuda")
    return cuda(0);
  int index = 0;
  if (name.starts_with("cuda:")) {
    auto digits = std::string_view{name}.substr(5);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0)
      return cuda(index);
  }
  return failure{ec::bad_config, "--device " + name + " is not auto, cpu, cuda or cuda:N"};
}

result<std::shared_ptr<const sample_data>> open_data(const learner_config& config, data_role role) {
  return open_data_set(request_of(config, role));
}

/// What is measured on other data must be like what is trained on, which has this shape.
static status check_eval_data(const learner_config& config, const sample_shape& shape) {
  if (config.eval_data.empty())
    return done{};
  WAGGLE_TRY(data, open_data(config, data_role::evaluation));
  if ((*data)->shape() != shape)
    return failure{ec::bad_config, "--eval-data " + config.eval_data + " has "
                                     + description_of((*data)->shape()) + ", and --data "
                                     + config.data + " " + description_of(shape)
                                     + ": give a part of the same set"};
  return done{};
}

result<learner_inputs> open_inputs(const learner_config& config) {
  learner_inputs in;
  for (const auto& name : config.devices.empty() ? std::vector{config.device} : config.devices) {
    WAGGLE_TRY(device, device_of(name));
    WAGGLE_TRY(computes, check_precision(config.format, *device));
    in.devices.push_back(*device);
  }
  WAGGLE_TRY(data, open_data(config));
  WAGGLE_TRY(fits, check_eval_data(config, (*data)->shape()));
  in.data = *data;
  if (in.data->in_blocks() && (config.replicas > 1 || config.reuse_gradient_buffers))
    return failure{ec::bad_config,
                   "--data " + config.data
                     + " is lines of JSON, of which each pass is over another number "
                       "of samples: leave out --replicas and --reuse-grad-buffers"};
  return in;
}

result<std::uint64_t> count_samples(const learner_config& config) {
  WAGGLE_TRY(data, open_data(config));
  auto window = drawn_window_of(**data, static_cast<std::size_t>(config.context));
  auto count = window_grid{**data, window}.count();
  if (count > sample_ledger::samples_max)
    return failure{ec::bad_config,
                   "--passes counts at most " + std::to_string(sample_ledger::samples_max)
                     + " samples, and --data " + config.data + " has " + std::to_string(count)
                     + ": leave it out, or raise --context"};
  return count;
}

std::string description_of(const sample_shape& shape) {
  switch (shape.what) {
    case sample_shape::kind::images:
      return c10::str("images of ", shape.channels, " × ", shape.rows, " × ", shape.columns);
    case sample_shape::kind::tokens:
      return "tokens";
    case sample_shape::kind::bytes:
      break;
  }
  return "text";
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  using setter = void (*)(int);
  if (auto set = reinterpret_cast<setter>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

namespace {

// The pass needs them at once, so a stream of their own would save nothing.
torch::Tensor moved(const torch::Tensor& values, const torch::Device& device) {
  return device.is_cpu() ? values : values.to(device, /*non_blocking=*/true);
}

/// int64 [count, window].
torch::Tensor windows_of(std::span<const std::byte> samples, std::int64_t count,
                         const sample_shape& shape, const torch::Device& device) {
  auto values = samples.size() / shape.item_bytes;
  auto length = static_cast<std::int64_t>(values) / count;
  auto windows = host_memory_for(device, {count, length}, torch::kInt64);
  auto* out = windows.data_ptr<std::int64_t>();
  if (shape.what == sample_shape::kind::tokens)
    (void)read_tokens(samples, shape.item_bytes, shape.classes, out); // the data has checked them
  else
    for (auto byte : samples)
      *out++ = std::to_integer<std::int64_t>(byte);
  return moved(windows, device);
}

} // namespace

batch batch_of(std::span<const std::byte> samples, std::int64_t count, const sample_shape& shape,
               const torch::Device& device) {
  if (shape.what != sample_shape::kind::images) {
    auto windows = windows_of(samples, count, shape, device);
    auto context = windows.size(1) - 1;
    return {windows.narrow(1, 0, context), windows.narrow(1, 1, context)};
  }
  auto images =
    host_memory_for(device, {count, shape.channels, shape.rows, shape.columns}, torch::kFloat32);
  auto labels = host_memory_for(device, {count}, torch::kInt64);
  auto* value = images.data_ptr<float>();
  auto* label = labels.data_ptr<std::int64_t>();
  for (std::size_t at = 0; at < samples.size(); at += shape.item_bytes) {
    *label++ = std::to_integer<std::int64_t>(samples[at]);
    for (auto byte : samples.subspan(at + 1, shape.item_bytes - 1))
      *value++ = static_cast<float>(std::to_integer<int>(byte)) / 255.0F;
  }
  return {moved(images, device), moved(labels, device)};
}

result<batch> next_batch(window_sampler& sampler, std::int64_t count, const torch::Device& device) {
  auto length = sampler.window_bytes();
  std::vector<std::byte> samples(static_cast<std::size_t>(count) * length);
  for (std::size_t at = 0; at < samples.size(); at += length)
    if (auto read = sampler.read_next(std::span{samples}.subspan(at, length)); !read)
      return read.error();
  return batch_of(samples, count, sampler.shape(), device);
}

} // namespace waggle
