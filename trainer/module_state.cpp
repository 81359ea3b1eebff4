// This file is long: it is one table of the tensors of a loop's model and optimizer; building it,
// checking it against them and stepping share its rows.

#include "trainer/module_state.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "runtime/crypto/digest.hpp"
#include "trainer/buffer_values.hpp"

namespace waggle {

namespace {

constexpr std::size_t ratios_bytes_max = 256; // of the agreement's 3 KiB
constexpr int surprising = 3;                 // updates with another rate than the loop's

namespace optim = torch::optim;

/// The identity without the numbers, which may change, because rounds settle them; but whether
/// there is a momentum, which needs a statistic.
optimizer_identity switches_in(const torch_optimizer& kind,
                               const optim::OptimizerOptions& options) {
  auto id = kind.identity(options);
  for (const auto& hyper : hyper_parameters())
    if (hyper.number != nullptr)
      hyper.set(id, hyper.name == "momentum" && hyper.of(id) != 0 ? 1 : 0);
  id.weight_decay = 0;
  return id;
}

/// The name in torch::optim of the first option that is not as it was. None if only numbers differ.
std::optional<std::string> changed_option(const optimizer_identity& before,
                                          const torch_optimizer& kind,
                                          const optim::OptimizerOptions& options) {
  optimizer_identity now;
  try {
    now = switches_in(kind, options);
  } catch (const std::invalid_argument& unsupported) {
    return "an option (" + std::string{unsupported.what()} + ")";
  }
  for (const auto& hyper : hyper_parameters())
    if (hyper.of(now) != hyper.of(before))
      return std::string{hyper.name};
  return std::nullopt;
}

/// The identity of all groups, which may differ in the learning rate, and in whether vectors decay.
optimizer_identity common_identity(const torch_optimizer& kind, optim::Optimizer& optimizer) {
  std::optional<optimizer_identity> common; // but for the weight decay
  std::set<double> matrices;                // weight decays
  std::set<double> vectors;
  for (auto& group : optimizer.param_groups()) {
    auto id = kind.identity(group.options());
    for (const auto& p : group.params())
      if (p.requires_grad() && p.numel() > 0)
        (p.dim() < 2 ? vectors : matrices).insert(id.weight_decay);
    id.weight_decay = 0;
    if (common.value_or(id) != id)
      throw std::invalid_argument{"the optimizer's parameter groups differ in more than the "
                                  "learning rate and the weight decay: that is not supported"};
    common = id;
  }
  auto& decays = matrices.empty() ? vectors : matrices;
  common->weight_decay = decays.empty() ? 0 : *decays.begin();
  common->decay_vectors = matrices.empty() || vectors.empty() || vectors == matrices;
  if (decays.size() > 1 || vectors.size() > 1 || (!common->decay_vectors && *vectors.begin() != 0))
    throw std::invalid_argument{
      "the weight decays of the optimizer's parameter groups are not supported: all parameters "
      "must "
      "have the same one, except that vectors (biases, weights of norms) may have 0"};
  return *common;
}

std::string type_name(const torch::Tensor& tensor) {
  return std::string{torch::typeMetaToScalarType(tensor.dtype()) == torch::kHalf
                       ? "float16"
                       : c10::toString(torch::typeMetaToScalarType(tensor.dtype()))};
}

} // namespace

module_state::module_state(const loop_parameters& trained,
                           std::unique_ptr<optim::Optimizer> optimizer, rate_owner owner,
                           const named_tensors& extra, update_place place, bool settles)
  : optimizer_(std::move(optimizer)), owner_(owner), place_(place) {
  if (!optimizer_)
    throw std::invalid_argument{"there is no optimizer"};
  if (optimizer_->param_groups().empty())
    throw std::invalid_argument{"the optimizer has no parameters"};
  kind_ = &torch_optimizer_of(*optimizer_);
  identity_ = common_identity(*kind_, *optimizer_);
  take_parameters(trained);
  take_buffers(trained, extra);
  match_optimizer();
  groups_ = groups_now();
  std::vector<state_tensor> parameters;
  for (const auto& p : parameters_)
    parameters.push_back({p.name, {p.sizes.begin(), p.sizes.end()}});
  std::vector<state_tensor> buffers;
  for (const auto& b : buffers_)
    buffers.push_back(buffer_row(b.name, b.tensor));
  table_ = table_of(std::move(parameters), identity_, std::move(buffers), settles);
  terms_.resize(static_cast<std::size_t>(table_.term_count()));
  offered_.resize(parameters_.size() + buffers_.size() + (terms_.empty() ? 0 : 1));
  copied_.resize(parameters_.size());
  finite_buffers_.resize(table_.buffer_count());
  read_buffers();
  std::vector<torch::Tensor> tensors;
  for (const auto& p : parameters_)
    tensors.push_back(p.tensor);
  in_module_ =
    std::make_shared<updated_tensors>(table_, std::move(tensors), *kind_, optimizer_, owner_);
  if (place_ == update_place::beside_passes && !buffers_.empty())
    throw std::invalid_argument{"delay-optimizer-step is not for running statistics and extra "
                                "tensors, such as "
                                + buffers_.front().name
                                + ", which passes would change while updates do: leave it out"};
  updated_ = place_ == update_place::module ? in_module_ : updated_tensors::master_of(*in_module_);
  steps_before_run_ = updated_->optimizer_steps();
}

void module_state::take_parameters(const loop_parameters& trained) {
  std::set<const void*> seen;
  std::set<std::string> names;
  for (const auto& [name, p] : trained.parameters()) {
    if (!p.defined() || !names.insert(name).second)
      throw std::invalid_argument{"parameter " + name
                                  + (p.defined() ? " is there twice" : " is no tensor")};
    if (!p.requires_grad() || p.numel() == 0)
      continue;
    if (p.dtype() != torch::kFloat32)
      throw std::invalid_argument{
        "parameter " + name + " is of type " + type_name(p)
        + ", and only float32 parameters can take part: call "
          "to(torch::kFloat32) on the module before the optimizer is "
          "constructed; passes may compute in another format by autocast"};
    if (seen.insert(p.data_ptr()).second)
      parameters_.push_back({name, p, p.device(), p.sizes().vec()});
  }
  if (parameters_.empty())
    throw std::invalid_argument{"there are no parameters to train"};
}

void module_state::take_buffers(const loop_parameters& trained, const named_tensors& extra) {
  std::set<std::string> names;
  std::set<const void*> seen;
  for (const auto& p : parameters_) {
    names.insert(p.name);
    seen.insert(p.tensor.data_ptr());
  }
  for (const auto& [key, b] : trained.buffers())
    if (is_exchanged(b) && seen.insert(b.data_ptr()).second) {
      names.insert(key);
      buffers_.push_back({key, b, b.device(), b.sizes().vec()});
    }
  auto refuse = [](const std::string& name, const std::string& why) {
    throw std::invalid_argument{"extra tensor " + name + " " + why};
  };
  for (const auto& [name, tensor] : extra) {
    if (!tensor.defined() || tensor.numel() == 0)
      refuse(name, "has no values");
    if (tensor.dtype() != torch::kFloat32)
      refuse(name,
             "is of type " + type_name(tensor)
               + ", and only float32 tensors can be averaged: keep it in float32, or leave it "
                 "out");
    if (tensor.requires_grad())
      refuse(name, "requires a gradient: make it a parameter of the module");
    if (!std::isfinite(tensor.sum().item<double>()))
      refuse(name, "has values that are not finite");
    if (!names.insert(name).second)
      refuse(name, "has the name of another tensor: rename it");
    if (!seen.insert(tensor.data_ptr()).second)
      refuse(name, "is a parameter or buffer already: leave it out");
    buffers_.push_back({name, tensor, tensor.device(), tensor.sizes().vec()});
  }
  std::ranges::stable_partition(buffers_,
                                [](const parameter& b) { return b.tensor.is_floating_point(); });
}

/// Reads the buffers. Those that a pass has made not finite get their last values back: otherwise
/// one such batch would spoil all later ones.
void module_state::read_buffers() {
  std::vector<float> values;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    auto i = table_.size() - buffers_.size() + b;
    values.resize(table_[i].elements());
    auto* last = finite_buffers_.data() + (table_.offset(i) - first_buffer_value());
    read_tensor(i, values);
    offered_[parameters_.size() + b] = {last, values.size()};
    if (offered_tensor now{values.data(), values.size()}; all_finite({&now, 1}))
      std::copy(values.begin(), values.end(), last);
    else
      write_tensor(i, std::vector<float>(last, last + values.size()));
  }
}

/// In the order of the table.
std::uint64_t module_state::first_buffer_value() const {
  return table_.value_count() - table_.buffer_count();
}

void module_state::match_optimizer() {
  std::set<const void*> known;
  for (const auto& p : parameters_)
    known.insert(p.tensor.data_ptr());
  std::set<const void*> seen;
  for (auto& group : optimizer_->param_groups()) {
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
  for (const auto& p : parameters_) {
    if (!seen.contains(p.tensor.data_ptr()))
      throw std::invalid_argument{"parameter " + p.name
                                  + " is trainable, but the optimizer does not have it"};
    auto has = [&](auto& group) {
      return std::ranges::any_of(group.params(), [&](const torch::Tensor& tensor) {
        return tensor.data_ptr() == p.tensor.data_ptr();
      });
    };
    auto& groups = optimizer_->param_groups();
    group_of_.push_back(
      static_cast<std::size_t>(std::ranges::find_if(groups, has) - groups.begin()));
  }
}

double module_state::learning_rate() const {
  return optimizer_->param_groups().front().options().get_lr();
}

std::string module_state::rate_ratios() const {
  std::map<const void*, double> rate_of;
  bool equal = true;
  for (const auto& g : groups_) {
    equal = equal && g.learning_rate == learning_rate();
    for (const auto& p : g.tensors)
      rate_of[p.data_ptr()] = g.learning_rate;
  }
  if (equal)
    return {};
  // In the order of the table, because peers may name their groups in another one.
  std::ostringstream out; // six digits: a quotient may differ in the last bits
  for (auto p = parameters_.begin(); p != parameters_.end();) {
    auto rate = rate_of.at(p->tensor.data_ptr());
    auto end = std::find_if(p, parameters_.end(), [&](const parameter& other) {
      return rate_of.at(other.tensor.data_ptr()) != rate;
    });
    out << (p == parameters_.begin() ? "" : ", ")
        << (learning_rate() != 0 ? rate / learning_rate() : rate) << " for " << end - p;
    p = end;
  }
  auto text = out.str();
  return text.size() <= ratios_bytes_max ? text : to_string(sha256(text)).substr(0, 16);
}

std::vector<compared_tensor> module_state::frozen(const loop_parameters& trained) {
  std::vector<compared_tensor> out;
  for (const auto& [name, p] : trained.parameters())
    if (p.defined() && !p.requires_grad() && p.numel() > 0)
      out.push_back({name, digest_of(p)});
  return out;
}

std::vector<module_state::group> module_state::groups_now() const {
  std::vector<group> all;
  for (auto& now : optimizer_->param_groups())
    all.push_back({switches_in(*kind_, now.options()), now.params(), now.options().get_lr()});
  return all;
}

void module_state::check_optimizer_unchanged() const {
  auto changed = [](const std::string& what) {
    throw std::runtime_error{what
                             + " since the waggle::optimizer was constructed: peers must have the "
                               "same optimizer, so change it before, on all peers; later only "
                               "numbers, such as the learning rate, may change"};
  };
  const auto& groups = optimizer_->param_groups();
  if (groups.size() != groups_.size())
    changed("the number of the optimizer's parameter groups changed from "
            + std::to_string(groups_.size()) + " to " + std::to_string(groups.size()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto of_group = " of the optimizer's parameter group " + std::to_string(i);
    if (!std::equal(groups[i].params().begin(), groups[i].params().end(),
                    groups_[i].tensors.begin(), groups_[i].tensors.end(),
                    [](const auto& a, const auto& b) { return a.is_same(b); }))
      changed("the tensors" + of_group + " changed");
    if (auto option = changed_option(groups_[i].options, *kind_, groups[i].options()))
      changed(*option + of_group + " changed");
    for (const auto& p : groups[i].params())
      if (p.requires_grad() && p.numel() > 0 && p.grad().defined()
          && std::ranges::none_of(parameters_,
                                  [&](const parameter& q) { return q.tensor.is_same(p); }))
        changed("a parameter with " + std::to_string(p.numel()) + " values" + of_group
                + " got a gradient, and is not trained by the run,");
  }
}

void module_state::check_unchanged(const loop_parameters& trained) const {
  check_optimizer_unchanged();
  auto changed = [](const std::string& name, const std::string& how) {
    throw std::runtime_error{"parameter " + name + " " + how
                             + " since the waggle::optimizer was constructed: the state of the run "
                               "cannot change, so change the module before, on all peers"};
  };
  std::set<const void*> seen;
  std::size_t next = 0;
  for (const auto& [name, p] : trained.parameters()) {
    if (!p.requires_grad() || p.numel() == 0 || !seen.insert(p.data_ptr()).second)
      continue;
    if (next == parameters_.size())
      changed(name, "was added, or unfrozen,");
    const auto& ours = parameters_[next++];
    if (name != ours.name) {
      bool known = std::ranges::find(parameters_, name, &parameter::name) != parameters_.end();
      changed(name, known ? "took the place of " + ours.name : "was added, or unfrozen,");
    }
    if (p.unsafeGetTensorImpl() != ours.tensor.unsafeGetTensorImpl())
      changed(name, "was replaced by another tensor");
    if (p.dtype() != torch::kFloat32)
      changed(name, "became " + type_name(p));
    if (p.device() != ours.device)
      changed(name, "was moved to " + p.device().str());
    if (p.sizes() != torch::IntArrayRef{ours.sizes})
      changed(name, "changed its shape");
  }
  if (next < parameters_.size())
    changed(parameters_[next].name, "was removed, frozen or tied to another");
  for (const auto& b : buffers_)
    if (b.tensor.sizes() != torch::IntArrayRef{b.sizes} || b.tensor.device() != b.device
        || buffer_row(b.name, b.tensor).what
             != table_[table_.size() - buffers_.size()
                       + static_cast<std::size_t>(&b - buffers_.data())]
                  .what)
      throw std::runtime_error{"buffer " + b.name
                               + " changed its shape, type or device since the waggle::optimizer "
                                 "was constructed: change its values in place"};
}

std::span<const offered_tensor> module_state::gradient() {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto grad = parameters_[i].tensor.grad();
    if (grad.defined()
        && (grad.is_sparse() || !grad.is_cpu() || grad.dtype() != torch::kFloat32
            || !grad.is_contiguous())) {
      auto& copy = copied_[i];
      if (!copy.defined())
        copy =
          torch::empty(parameters_[i].sizes,
                       torch::TensorOptions{}.dtype(torch::kFloat32).pinned_memory(grad.is_cuda()));
      copy.copy_(grad.is_sparse() ? grad.to_dense() : grad);
      grad = copy;
    }
    offered_[i] = {grad.defined() ? grad.data_ptr<float>() : nullptr,
                   static_cast<std::size_t>(table_[i].elements())};
  }
  read_buffers();
  write_terms();
  return offered_;
}

/// A schedule that all loops follow, and the run's own rate, are no wishes. Where others set other
/// rates than ours says, it is one.
void module_state::write_terms() {
  if (terms_.empty())
    return;
  wishes now;
  for (const auto& p : parameters_)
    now.present.push_back(p.tensor.grad().defined());
  bool differ = surprises_ > surprising;
  if (schedulers_ && differ)
    prepare_rates();
  if (!schedulers_ || differ)
    for (const auto& group : optimizer_->param_groups()) {
      auto numbers = numbers_in(*kind_, group.options());
      auto& wanted = now.numbers.emplace_back(numbers.begin(), numbers.end());
      if (owner_ == rate_owner::run)
        wanted.front().reset();
    }
  offered_.back() = {terms_.data(), terms_.size()};
  if (now == written_)
    return;
  update_terms terms{parameters_.size(), table_.numbers()};
  terms.present = now.present;
  for (std::size_t i = 0; !now.numbers.empty() && i < parameters_.size(); ++i)
    for (std::size_t n = 0; n < terms.numbers_of_each; ++n)
      terms.number(i, n) = now.numbers[group_of_[i]][n];
  terms.write(terms_);
  written_ = std::move(now);
}

std::optional<std::string> module_state::surprise() {
  auto used = rate_used();
  if (!used || terms_.empty() || owner_ != rate_owner::optimizer)
    return std::nullopt;
  auto wish = learning_rate();
  if (surprises_ < surprising && *used != wish)
    ++surprises_;
  else if (surprises_ < surprising && !schedulers_) // of one that all follow, others say nothing
    surprises_ = 0;
  if (surprises_ != surprising)
    return std::nullopt;
  ++surprises_; // once
  std::ostringstream out;
  out << "this loop " << (schedulers_ ? "follows a schedule that has" : "set")
      << " the learning rate " << wish << ", and the peers made the last " << surprising
      << " updates with " << *used
      << ", the median of what their loops set: to have all loops count the run's updates, give "
         "the scheduler of each to optimizer::follow";
  return out.str();
}

void module_state::unscale_gradients(double scale) {
  torch::NoGradGuard guard;
  for (const auto& p : parameters_)
    if (const auto& grad = p.tensor.grad(); grad.defined() && scale != 1)
      grad.detach().div_(scale);
}

bool module_state::gradient_is_finite() const {
  return all_finite(offered_);
}

void module_state::apply(std::span<const float> gradient, double lr) {
  prepare_rates();
  updated_->apply(gradient, lr);
  refresh();
}

void module_state::step(double lr) {
  prepare_rates();
  if (updated_ != in_module_)
    updated_->take_gradients(*in_module_);
  updated_->step(lr);
  refresh();
}

void module_state::follow(scheduler_maker make, std::function<std::uint64_t()> epoch) {
  if (owner_ == rate_owner::run)
    throw std::invalid_argument{"with rate_owner::run, the run owns the rate: use its schedule, or "
                                "leave the rate to the optimizer"};
  if (place_ == update_place::beside_passes)
    throw std::invalid_argument{"with delay-optimizer-step updates are made beside the loop: use a "
                                "schedule of the run, or leave the option out"};
  if (!schedulers_)
    schedulers_.emplace(*optimizer_);
  schedulers_->add(std::move(make));
  epoch_ = std::move(epoch);
}

void module_state::prepare_rates() {
  if (schedulers_)
    schedulers_->move_to(epoch_ ? epoch_() : optimizer_steps() - steps_before_run_);
  if (updated_ != in_module_)
    updated_->take_numbers(*optimizer_);
}

void module_state::remember_versions() {
  versions_.clear();
  for (const auto& p : parameters_)
    versions_.push_back(p.tensor._version());
}

std::string module_state::written() const {
  for (std::size_t i = 0; i < versions_.size(); ++i)
    if (parameters_[i].tensor._version() != versions_[i])
      return parameters_[i].name;
  return {};
}

void module_state::set_optimizer_steps(std::uint64_t steps) {
  if (steps < steps_before_run_) // the run is younger than what the loop loaded
    steps_before_run_ = 0;
  updated_->set_optimizer_steps(steps);
  remember_versions();
}

void module_state::refresh() {
  if (updated_ == in_module_)
    return remember_versions();
  in_module_->take_values(*updated_);
  if (auto rate = updated_->rate_of_run())
    updated_->set_rates(*optimizer_, *rate);
  remember_versions();
}

std::shared_ptr<loop_model> module_state::master() const {
  return place_ == update_place::beside_passes ? updated_ : nullptr;
}

// -- the state ------------------------------------------------------------------------------------

/// Null if this tensor of the table is no buffer.
const module_state::parameter* module_state::buffer(std::size_t which) const {
  auto first = table_.size() - buffers_.size();
  return which < first ? nullptr : &buffers_[which - first];
}

void module_state::read_tensor(std::size_t which, std::span<float> out) const {
  torch::NoGradGuard guard;
  if (const auto* b = buffer(which)) {
    read_buffer(b->tensor, out);
    return;
  }
  updated_->read_tensor(which, out);
}

void module_state::write_tensor(std::size_t which, std::span<const float> values) {
  torch::NoGradGuard guard;
  if (const auto* b = buffer(which)) {
    write_buffer(b->tensor, values);
    auto at = table_.offset(which) - first_buffer_value();
    std::copy(values.begin(), values.end(),
              finite_buffers_.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  }
  updated_->write_tensor(which, values);
  if (updated_ != in_module_ && which < parameters_.size())
    in_module_->write_tensor(which, values);
  if (which < versions_.size())
    versions_[which] = parameters_[which].tensor._version();
}

} // namespace waggle
