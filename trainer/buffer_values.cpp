#include "trainer/buffer_values.hpp"

#include "runtime/codec/exact_number.hpp"
#include "runtime/crypto/digest.hpp"
#include "trainer/host_staging.hpp"

namespace waggle {

namespace {

constexpr auto pieces = static_cast<std::int64_t>(exact_values);

} // namespace

bool is_exchanged(const torch::Tensor& buffer) {
  return buffer.defined() && buffer.numel() > 0 && buffer.layout() == torch::kStrided
         && !buffer.is_complex() && !buffer.is_quantized()
         && (!buffer.is_floating_point() || torch::isfinite(buffer).all().item<bool>());
}

digest digest_of(const torch::Tensor& tensor) {
  auto values = tensor.detach().cpu().contiguous();
  std::string shape;
  for (auto size : values.sizes())
    shape += (shape.empty() ? "[" : ", ") + std::to_string(size);
  auto text = (shape.empty() ? "[" : shape) + "] " + std::to_string(values.element_size()) + " ";
  return sha256_stream{}
    .add(text)
    .add(byte_span{static_cast<const std::byte*>(values.data_ptr()), values.nbytes()})
    .finish();
}

state_tensor buffer_row(const std::string& name, const torch::Tensor& buffer) {
  state_tensor row{name, {buffer.sizes().begin(), buffer.sizes().end()}};
  row.what = buffer.is_floating_point() ? state_tensor::kind::buffer : state_tensor::kind::counter;
  if (row.what == state_tensor::kind::counter)
    row.shape.push_back(exact_values);
  return row;
}

void read_buffer(const torch::Tensor& from, std::span<float> out) {
  torch::NoGradGuard guard;
  auto values = from.detach().reshape({-1});
  if (from.is_floating_point()) {
    view_of(out).copy_(values);
    return;
  }
  auto rest = values.to(torch::kCPU, torch::kFloat64);
  for (auto& piece : view_of(out).view({-1, pieces}).unbind(1)) {
    piece.copy_(rest);
    rest = rest - piece.to(torch::kFloat64);
  }
}

void write_buffer(const torch::Tensor& to, std::span<const float> values) {
  torch::NoGradGuard guard;
  auto target = to.detach();
  auto given = view_of(values);
  if (!to.is_floating_point()) {
    target.copy_(given.view({-1, pieces}).to(torch::kFloat64).sum(1).view(to.sizes()));
    return;
  }
  auto next = given.view(to.sizes()).to(to.device());
  if (to.scalar_type() != torch::kFloat32)
    next = torch::where(target.to(torch::kFloat32) == next, target, next.to(to.scalar_type()));
  target.copy_(next);
}

} // namespace waggle
