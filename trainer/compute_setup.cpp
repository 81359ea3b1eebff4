#include "trainer/compute_setup.hpp"

#include <charconv>

#include <dlfcn.h>

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

std::size_t window_of(const learner_config& config) {
  return static_cast<std::size_t>(config.context) + 1;
}

result<std::shared_ptr<const byte_data>> open_data(const learner_config& config) {
  if (config.data != "synthetic")
    return open_text(config.data, window_of(config));
  auto text = make_synthetic_text();
  if (text->sizes().front() < window_of(config))
    return failure{ec::bad_config,
                   "--context " + std::to_string(config.context)
                     + " is longer than the synthetic text: give a smaller one, or --data"};
  return text;
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  using setter = void (*)(int);
  if (auto set = reinterpret_cast<setter>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

result<torch::Tensor> next_windows(window_sampler& sampler, std::int64_t batch,
                                   const torch::Device& device) {
  auto length = static_cast<std::int64_t>(sampler.window());
  auto windows = host_memory_for(device, {batch, length}, torch::kInt64);
  auto* out = windows.data_ptr<std::int64_t>();
  std::vector<std::byte> window(sampler.window());
  for (std::int64_t b = 0; b < batch; ++b) {
    if (auto read = sampler.read_next(window); !read)
      return read.error();
    for (auto byte : window)
      *out++ = std::to_integer<std::int64_t>(byte);
  }
  // The pass needs them at once, so a stream of their own would save nothing.
  return device.is_cpu() ? windows : windows.to(device, /*non_blocking=*/true);
}

} // namespace waggle
