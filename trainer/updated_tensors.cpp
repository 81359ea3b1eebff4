#include "trainer/updated_tensors.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "runtime/crypto/digest.hpp"
#include "runtime/training/state_schema.hpp"
#include "trainer/host_staging.hpp"
#include "trainer/optimizer_state.hpp"
#include "trainer/rule_optimizer.hpp"

namespace waggle {

namespace {

namespace optim = torch::optim;

/// An optimizer like `from`, without statistics, whose groups have the tensors that `copies` has
/// for those of `from`. Tensors without a copy are left out: they are not trained.
std::shared_ptr<optim::Optimizer>
same_optimizer(const torch_optimizer& kind, optim::Optimizer& from,
               const std::map<const void*, torch::Tensor>& copies) {
  auto copied = [&](const std::vector<torch::Tensor>& tensors) {
    std::vector<torch::Tensor> found;
    for (const auto& t : tensors)
      if (auto copy = copies.find(t.data_ptr()); copy != copies.end())
        found.push_back(copy->second);
    return found;
  };
  auto& groups = from.param_groups();
  auto& first = groups.front();
  std::shared_ptr<optim::Optimizer> made =
    kind.make(kind.identity(first.options()), first.options().get_lr(), copied(first.params()));
  for (auto group = std::next(groups.begin()); group != groups.end(); ++group)
    add_group(*made, {copied(group->params()), group->options().clone()});
  return made;
}

std::vector<double> ratios_of(optim::Optimizer& optimizer) {
  std::vector<double> ratios;
  auto first = optimizer.param_groups().front().options().get_lr();
  for (auto& group : optimizer.param_groups()) {
    auto lr = group.options().get_lr();
    if (first == 0 && lr != 0)
      throw std::invalid_argument{
        "the learning rate of the optimizer's first parameter group is 0, and that of another one "
        "is not: with rate_owner::run each group keeps its ratio to the first one, so put a group "
        "that is trained first"};
    ratios.push_back(lr == first ? 1 : lr / first);
  }
  return ratios;
}

/// A matrix of numbers between -1 and 1, with all bits of a float; the same everywhere. Its size is
/// no multiple of the width of an instruction.
torch::Tensor fixed_values(std::int64_t factor, std::int64_t first) {
  auto numbers = torch::arange(17 * 59, torch::kLong).mul_(factor).add_(first).remainder_(2003);
  return numbers.sub_(1001).to(torch::kDouble).div_(1001).to(torch::kFloat32).view({17, 59});
}

} // namespace

updated_tensors::updated_tensors(const state_table& table, std::vector<torch::Tensor> tensors,
                                 const torch_optimizer& kind,
                                 std::shared_ptr<optim::Optimizer> optimizer, rate_owner owner)
  : table_(table), tensors_(std::move(tensors)), kind_(kind), optimizer_(std::move(optimizer)),
    owner_(owner),
    ratios_(owner == rate_owner::run ? ratios_of(*optimizer_) : std::vector<double>{}),
    left_out_(tensors_.size()) {
  find_places();
  rounding_ = try_rounding();
  if (kind_.counter.steps == nullptr)
    return;
  std::vector<std::int64_t> made; // the optimizer may have stepped before
  for (const auto& p : tensors_)
    made.push_back(kind_.counter.steps(*optimizer_, p));
  auto most = std::ranges::max(made);
  steps_ = static_cast<std::uint64_t>(most);
  for (std::size_t i = 0; i < made.size(); ++i)
    left_out_[i] = static_cast<float>(most - made[i]);
}

std::shared_ptr<updated_tensors> updated_tensors::master_of(const updated_tensors& from) {
  torch::NoGradGuard guard;
  std::vector<torch::Tensor> copies;
  std::map<const void*, torch::Tensor> copy_of;
  for (const auto& t : from.tensors_) {
    copies.push_back(host_memory_for(t.device(), t.sizes(), torch::kFloat32));
    copies.back().copy_(t.detach());
    copy_of.emplace(t.data_ptr(), copies.back());
  }
  auto optimizer = same_optimizer(from.kind_, *from.optimizer_, copy_of);
  const auto& counter = from.kind_.counter;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    for (const auto& [of, s] : from.places_) {
      if (of != i || !s)
        continue;
      const auto* value = from.kind_.statistic(*from.optimizer_, from.tensors_[i], *s, false);
      if (value != nullptr && value->defined())
        from.kind_.statistic(*optimizer, copies[i], *s, true)->copy_(value->detach());
    }
    // A parameter that had no gradient in some steps has made fewer.
    if (auto made = counter.steps ? counter.steps(*from.optimizer_, from.tensors_[i]) : 0; made > 0)
      counter.set_steps(*optimizer, copies[i], made);
  }
  auto master = std::make_shared<updated_tensors>(from.table_, std::move(copies), from.kind_,
                                                  std::move(optimizer), from.owner_);
  master->left_out_ = from.left_out_;
  from.optimizer_->state().clear();
  return master;
}

std::unique_ptr<updated_tensors> updated_tensors::of_flat(const state_table& table,
                                                          const torch::Tensor& parameters,
                                                          const optimizer_identity& numbers) {
  std::vector<torch::Tensor> tensors;
  for (auto i : table.indices_of({state_tensor::kind::parameter})) {
    const auto& shape = table[i].shape;
    tensors.push_back(parameters
                        .narrow(0, static_cast<std::int64_t>(table.offset(i)),
                                static_cast<std::int64_t>(table[i].elements()))
                        .view(std::vector<std::int64_t>(shape.begin(), shape.end())));
  }
  std::shared_ptr<rule_optimizer> optimizer = rule_optimizer::of_each(tensors, numbers, 0);
  for (const auto& t : tensors)
    (void)optimizer->state_of(t);
  const auto& kind = torch_optimizer_of(*optimizer);
  return std::make_unique<updated_tensors>(table, std::move(tensors), kind, std::move(optimizer),
                                           rate_owner::run);
}

void updated_tensors::find_places() {
  auto identity = kind_.identity(optimizer_->param_groups().front().options());
  std::map<std::string, place> by_name{{std::string{left_out_name}, {tensors_.size()}}};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    by_name.emplace(table_[i].name, place{i});
    std::size_t s = 0;
    for (const auto& of : find_optimizer(identity.kind)->statistics(identity, table_[i].shape))
      by_name.emplace(of.name + "/" + table_[i].name, place{i, s++});
  }
  for (std::size_t i = 0; i < by_name.size(); ++i)
    places_.push_back(by_name.at(table_[i].name));
}

void updated_tensors::set_rates(optim::Optimizer& of, double lr) const {
  for (std::size_t i = 0; i < ratios_.size(); ++i)
    of.param_groups().at(i).options().set_lr(lr * ratios_[i]);
}

void updated_tensors::take_numbers(optim::Optimizer& from) {
  for (std::size_t i = 0; i < optimizer_->param_groups().size(); ++i) {
    auto numbers = numbers_in(kind_, from.param_groups()[i].options());
    set_numbers_in(kind_, optimizer_->param_groups()[i].options(),
                   std::vector<std::optional<double>>(numbers.begin(), numbers.end()));
  }
}

void updated_tensors::take_gradients(const updated_tensors& from) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& grad = from.tensors_[i].grad();
    auto& ours = tensors_[i].mutable_grad();
    if (!grad.defined())
      ours.reset(); // the optimizer leaves out the parameter, as it would in the module
    else if (!ours.defined())
      ours = torch::empty_like(tensors_[i]).copy_(grad.is_sparse() ? grad.to_dense() : grad);
    else
      ours.copy_(grad.is_sparse() ? grad.to_dense() : grad);
  }
}

void updated_tensors::take_values(const updated_tensors& from) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    tensors_[i].detach().copy_(from.tensors_[i].detach());
}

void updated_tensors::apply(std::span<const float> gradient, double lr) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& p = tensors_[i];
    auto& grad = p.mutable_grad();
    if (settled_ && !settled_->present[i]) { // no peer has one: the optimizer leaves it out
      grad.reset();
      continue;
    }
    if (!grad.defined() || grad.is_sparse())
      grad = torch::empty_like(p.detach());
    auto values = gradient.subspan(table_.offset(i), table_[i].elements());
    grad.detach().copy_(view_of(values).view(p.sizes()));
  }
  step(lr);
}

void updated_tensors::apply(const torch::Tensor& gradient, double lr) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!settled_ || settled_->present[i])
      tensors_[i].mutable_grad() =
        gradient.narrow(0, static_cast<std::int64_t>(table_.offset(i)), tensors_[i].numel())
          .view(tensors_[i].sizes());
  step(lr);
  for (const auto& p : tensors_)
    p.mutable_grad().reset();
}

/// Makes the step with what the members have settled. The groups then have the loop's own numbers
/// again, from which its schedulers go on.
void updated_tensors::step(double lr) {
  if (owner_ == rate_owner::run) {
    rate_of_run_ = lr;
    set_rates(*optimizer_, lr);
  }
  auto settled = std::exchange(settled_, std::nullopt);
  if (!settled || std::ranges::none_of(settled->numbers, &std::optional<double>::has_value))
    return make_step();
  std::map<const void*, std::size_t> index;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    index.emplace(tensors_[i].data_ptr(), i);
  std::vector<std::vector<double>> own;
  for (auto& group : optimizer_->param_groups()) {
    own.push_back(numbers_in(kind_, group.options()));
    std::optional<std::size_t> first; // in the order of the table, of the group's parameters
    for (const auto& p : group.params())
      if (auto found = index.find(p.data_ptr()); found != index.end())
        first = std::min(first.value_or(found->second), found->second);
    if (first)
      set_numbers_in(kind_, group.options(),
                     std::span{settled->numbers}.subspan(*first * settled->numbers_of_each,
                                                         settled->numbers_of_each));
  }
  make_step();
  for (std::size_t i = 0; i < own.size(); ++i)
    set_numbers_in(kind_, optimizer_->param_groups()[i].options(),
                   std::vector<std::optional<double>>(own[i].begin(), own[i].end()));
}

void updated_tensors::make_step() {
  rate_used_ = optimizer_->param_groups().front().options().get_lr();
  optimizer_->step();
  ++steps_;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!tensors_[i].grad().defined())
      ++left_out_[i];
}

torch::Tensor updated_tensors::tensor(std::size_t which) {
  auto [parameter, statistic] = places_[which];
  if (parameter == tensors_.size())
    return view_of(left_out_);
  const auto& p = tensors_[parameter];
  return (statistic ? *kind_.statistic(*optimizer_, p, *statistic, true) : p).detach();
}

void updated_tensors::read_tensor(std::size_t which, std::span<float> out) const {
  torch::NoGradGuard guard;
  auto [parameter, statistic] = places_[which];
  if (parameter == tensors_.size()) {
    std::ranges::copy(left_out_, out.begin());
    return;
  }
  const auto& p = tensors_[parameter];
  const auto* from = statistic ? kind_.statistic(*optimizer_, p, *statistic, false) : &p;
  if (from != nullptr && from->defined())
    view_of(out).view(from->sizes()).copy_(from->detach());
  else
    std::fill(out.begin(), out.end(), 0.0F);
}

void updated_tensors::write_tensor(std::size_t which, std::span<const float> values) {
  torch::NoGradGuard guard;
  auto to = tensor(which);
  to.copy_(view_of(values).view(to.sizes()));
}

void updated_tensors::set_optimizer_steps(std::uint64_t steps) {
  torch::NoGradGuard guard;
  steps_ = steps;
  if (kind_.counter.set_steps != nullptr)
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      auto made = static_cast<std::int64_t>(steps) - static_cast<std::int64_t>(left_out_[i]);
      kind_.counter.set_steps(*optimizer_, tensors_[i], std::max(made, std::int64_t{0}));
    }
}

/// A hash of what three steps leave of a fixed matrix. Python does the same with torch's optimizers
/// (trainer/python/waggle/_rounding.py).
std::uint64_t updated_tensors::try_rounding() const {
  constexpr double fixed_rate = 0.01;
  auto has_matrix = [](const optim::OptimizerParamGroup& group) {
    return std::ranges::any_of(group.params(), [](const auto& p) { return p.dim() > 1; });
  };
  auto& groups = optimizer_->param_groups();
  auto group = std::ranges::find_if(groups, has_matrix); // vectors may have another weight decay
  auto& options = (group != groups.end() ? *group : groups.front()).options();
  auto device = tensors_.front().device();
  torch::NoGradGuard guard;
  auto parameters = fixed_values(7919, 0).to(device);
  auto trial = kind_.make(kind_.identity(options), fixed_rate, {parameters});
  for (std::int64_t i = 0; i < 3; ++i) {
    parameters.mutable_grad() = fixed_values(7907, 104'729 * i).to(device);
    trial->step();
  }
  auto there = parameters.detach().cpu();
  auto hash = sha256(byte_span{static_cast<const std::byte*>(there.data_ptr()), there.nbytes()});
  std::uint64_t number = 0;
  for (auto byte : std::span{hash.bytes}.first<sizeof number>())
    number = number << 8U | std::to_integer<std::uint64_t>(byte);
  return std::max<std::uint64_t>(number, 1); // 0: not known
}

} // namespace waggle
