#include "trainer/module_state.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <typeinfo>

namespace waggle {

namespace {

namespace optim = torch::optim;

std::string key_of(const torch::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}

template <class State>
State* state_of(const optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto found = optimizer.state().find(key_of(parameter));
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

template <class State>
State& make_state(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& slot = optimizer.state()[key_of(parameter)];
  if (!slot)
    slot = std::make_unique<State>();
  return static_cast<State&>(*slot);
}

/// For the states of Adam and AdamW, which are different types with the same members.
template <class State>
State& make_moments(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = make_state<State>(optimizer, parameter);
  if (!state.exp_avg().defined()) {
    state.exp_avg(torch::zeros_like(parameter.detach()));
    state.exp_avg_sq(torch::zeros_like(parameter.detach()));
  }
  return state;
}

template <class Options>
optimizer_identity with_moments(std::string kind, const Options& o) {
  if (o.amsgrad())
    throw std::invalid_argument{"amsgrad is not supported: its third statistic is not part of the "
                                "run's state"};
  optimizer_identity id;
  id.kind = std::move(kind);
  std::tie(id.beta1, id.beta2) = o.betas();
  id.epsilon = o.eps();
  id.weight_decay = o.weight_decay();
  return id;
}

optimizer_identity identity_in(const optim::Optimizer& optimizer,
                               const optim::OptimizerOptions& options) {
  const auto& type = typeid(optimizer);
  if (type == typeid(optim::Adam))
    return with_moments("adam", static_cast<const optim::AdamOptions&>(options));
  if (type == typeid(optim::AdamW))
    return with_moments("adamw", static_cast<const optim::AdamWOptions&>(options));
  if (type != typeid(optim::SGD))
    throw std::invalid_argument{
      "only the optimizers SGD, Adam and AdamW of torch::optim are supported: the statistics of "
      "others are not known, so a peer that joins could not receive them"};
  const auto& o = static_cast<const optim::SGDOptions&>(options);
  if (o.dampening() != 0)
    throw std::invalid_argument{"SGD with dampening is not supported: its first step differs from "
                                "later ones, so the parameters of a joining peer would diverge"};
  optimizer_identity id;
  id.kind = "sgd";
  id.momentum = o.momentum();
  id.nesterov = o.nesterov();
  id.weight_decay = o.weight_decay();
  return id;
}

torch::Tensor view_of(std::span<const float> values, torch::IntArrayRef sizes) {
  // torch has no read-only tensors.
  return torch::from_blob(const_cast<float*>(values.data()), sizes);
}

std::string type_name(const torch::Tensor& tensor) {
  return std::string{torch::typeMetaToScalarType(tensor.dtype()) == torch::kHalf
                       ? "float16"
                       : c10::toString(torch::typeMetaToScalarType(tensor.dtype()))};
}

} // namespace

module_state::module_state(torch::nn::Module& module, std::unique_ptr<optim::Optimizer> optimizer,
                           rate_owner owner)
  : optimizer_(std::move(optimizer)), owner_(owner) {
  if (!optimizer_)
    throw std::invalid_argument{"there is no optimizer"};
  if (optimizer_->param_groups().empty())
    throw std::invalid_argument{"the optimizer has no parameters"};
  identity_ = identity_in(*optimizer_, optimizer_->param_groups().front().options());
  take_parameters(module);
  match_optimizer();
  std::vector<state_tensor> tensors;
  for (const auto& p : parameters_)
    tensors.push_back({p.name, {p.sizes.begin(), p.sizes.end()}, state_tensor::kind::parameter});
  table_ = table_of(std::move(tensors), identity_);
  gradient_.resize(table_.parameter_count());
  const auto& first = parameters_.front().tensor; // the optimizer may have stepped before
  if (auto* state = state_of<optim::AdamParamState>(*optimizer_, first);
      state != nullptr && identity_.kind == "adam")
    steps_ = static_cast<std::uint64_t>(state->step());
  if (auto* state = state_of<optim::AdamWParamState>(*optimizer_, first);
      state != nullptr && identity_.kind == "adamw")
    steps_ = static_cast<std::uint64_t>(state->step());
}

void module_state::take_parameters(const torch::nn::Module& module) {
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& p = item.value();
    if (!p.requires_grad() || p.numel() == 0)
      continue;
    if (p.dtype() != torch::kFloat32)
      throw std::invalid_argument{"parameter " + item.key() + " is of type " + type_name(p)
                                  + ": only float32 parameters can take part"};
    if (seen.insert(p.data_ptr()).second)
      parameters_.push_back({item.key(), p, p.device(), p.sizes().vec()});
  }
  if (parameters_.empty())
    throw std::invalid_argument{"the module has no parameters to train"};
}

void module_state::match_optimizer() {
  std::set<const void*> known;
  for (const auto& p : parameters_)
    known.insert(p.tensor.data_ptr());
  std::set<const void*> seen;
  for (auto& group : optimizer_->param_groups()) {
    auto other = identity_in(*optimizer_, group.options());
    if (other.momentum != identity_.momentum || other.nesterov != identity_.nesterov
        || other.beta1 != identity_.beta1 || other.beta2 != identity_.beta2
        || other.epsilon != identity_.epsilon || other.weight_decay != identity_.weight_decay)
      throw std::invalid_argument{"the optimizer's parameter groups differ in more than the "
                                  "learning rate: that is not supported"};
    auto& tensors = group.params();
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                                 [&](const torch::Tensor& p) {
                                   return known.contains(p.data_ptr())
                                          && !seen.insert(p.data_ptr()).second;
                                 }),
                  tensors.end());
    for (const auto& p : tensors)
      if (p.requires_grad() && p.numel() > 0 && !known.contains(p.data_ptr()))
        throw std::invalid_argument{"the optimizer has a parameter with "
                                    + std::to_string(p.numel())
                                    + " values that the module does not have"};
  }
  for (const auto& p : parameters_)
    if (!seen.contains(p.tensor.data_ptr()))
      throw std::invalid_argument{"parameter " + p.name
                                  + " is trainable, but the optimizer does not have it"};
}

double module_state::learning_rate() const {
  return optimizer_->param_groups().front().options().get_lr();
}

void module_state::check_unchanged(const torch::nn::Module& module) const {
  auto changed = [](const std::string& name, const std::string& how) {
    throw std::runtime_error{
      "parameter " + name + " " + how
      + " since the waggle::optimizer was constructed: the state of the run cannot change"};
  };
  std::set<const void*> seen;
  std::size_t next = 0;
  for (const auto& item : module.named_parameters()) {
    const auto& p = item.value();
    if (!p.requires_grad() || p.numel() == 0 || !seen.insert(p.data_ptr()).second)
      continue;
    if (next == parameters_.size())
      changed(item.key(), "was added");
    const auto& ours = parameters_[next++];
    if (item.key() != ours.name)
      changed(item.key(), "took the place of " + ours.name);
    if (p.unsafeGetTensorImpl() != ours.tensor.unsafeGetTensorImpl())
      changed(item.key(), "was replaced by another tensor");
    if (p.dtype() != torch::kFloat32)
      changed(item.key(), "became " + type_name(p));
    if (p.device() != ours.device)
      changed(item.key(), "was moved to " + p.device().str());
    if (p.sizes() != torch::IntArrayRef{ours.sizes})
      changed(item.key(), "changed its shape");
  }
  if (next < parameters_.size())
    changed(parameters_[next].name, "was removed, frozen or tied to another");
}

std::span<const float> module_state::gradient() {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& p = parameters_[i];
    std::span<float> to{gradient_.data() + table_.offset(i),
                        static_cast<std::size_t>(table_[i].elements())};
    const auto& grad = p.tensor.grad();
    if (grad.defined())
      view_of(to, p.sizes).copy_(grad.is_sparse() ? grad.to_dense() : grad);
    else
      std::fill(to.begin(), to.end(), 0.0F);
  }
  return gradient_;
}

bool module_state::gradient_is_finite() const {
  // The sum is finite only if every value is finite (opposite infinities give NaN).
  double sum = 0;
  for (float v : gradient_)
    sum += static_cast<double>(v);
  return std::isfinite(sum);
}

void module_state::apply(std::span<const float> gradient, double lr) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& p = parameters_[i];
    auto& grad = p.tensor.mutable_grad();
    if (!grad.defined() || grad.is_sparse())
      grad = torch::empty_like(p.tensor.detach());
    grad.detach().copy_(view_of(gradient.subspan(table_.offset(i), table_[i].elements()), p.sizes));
  }
  if (owner_ == rate_owner::run)
    for (auto& group : optimizer_->param_groups())
      group.options().set_lr(lr);
  optimizer_->step();
  ++steps_;
}

// -- the state ------------------------------------------------------------------------------------

/// Returns null if the statistic does not exist yet. `block` 0 is the first statistic.
torch::Tensor* module_state::statistic(std::size_t block, const torch::Tensor& of) const {
  torch::Tensor* found = nullptr;
  if (identity_.kind == "sgd") {
    if (auto* state = state_of<optim::SGDParamState>(*optimizer_, of))
      found = &state->momentum_buffer();
  } else if (identity_.kind == "adam") {
    if (auto* state = state_of<optim::AdamParamState>(*optimizer_, of))
      found = block == 0 ? &state->exp_avg() : &state->exp_avg_sq();
  } else if (auto* state = state_of<optim::AdamWParamState>(*optimizer_, of)) {
    found = block == 0 ? &state->exp_avg() : &state->exp_avg_sq();
  }
  return found != nullptr && found->defined() ? found : nullptr;
}

torch::Tensor& module_state::make_statistic(std::size_t block, const torch::Tensor& of) {
  if (identity_.kind == "sgd") {
    auto& state = make_state<optim::SGDParamState>(*optimizer_, of);
    if (!state.momentum_buffer().defined())
      state.momentum_buffer(torch::zeros_like(of.detach()));
    return state.momentum_buffer();
  }
  if (identity_.kind == "adam") {
    auto& state = make_moments<optim::AdamParamState>(*optimizer_, of);
    return block == 0 ? state.exp_avg() : state.exp_avg_sq();
  }
  auto& state = make_moments<optim::AdamWParamState>(*optimizer_, of);
  return block == 0 ? state.exp_avg() : state.exp_avg_sq();
}

void module_state::read_tensor(std::size_t which, std::span<float> out) const {
  torch::NoGradGuard guard;
  auto block = which / parameters_.size();
  const auto& p = parameters_[which % parameters_.size()];
  const auto* from = block == 0 ? &p.tensor : statistic(block - 1, p.tensor);
  if (from != nullptr)
    view_of(out, p.sizes).copy_(from->detach());
  else
    std::fill(out.begin(), out.end(), 0.0F);
}

void module_state::write_tensor(std::size_t which, std::span<const float> values) {
  torch::NoGradGuard guard;
  auto block = which / parameters_.size();
  const auto& p = parameters_[which % parameters_.size()];
  auto to = block == 0 ? p.tensor : make_statistic(block - 1, p.tensor);
  to.detach().copy_(view_of(values, p.sizes));
}

void module_state::set_optimizer_steps(std::uint64_t steps) {
  torch::NoGradGuard guard;
  steps_ = steps;
  for (const auto& p : parameters_)
    if (identity_.kind == "adam")
      make_moments<optim::AdamParamState>(*optimizer_, p.tensor)
        .step(static_cast<std::int64_t>(steps));
    else if (identity_.kind == "adamw")
      make_moments<optim::AdamWParamState>(*optimizer_, p.tensor)
        .step(static_cast<std::int64_t>(steps));
}

} // namespace waggle
