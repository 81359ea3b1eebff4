#include "runtime/training/averaged_tensors.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "runtime/core/named.hpp"
#include "runtime/training/fragments.hpp"
#include "runtime/training/tensor_store.hpp"
#include "runtime/training/update_terms.hpp"

namespace waggle {

namespace {

using kind = state_tensor::kind;

/// "exp_avg" of "exp_avg/head.weight".
std::string statistic_of(const state_tensor& tensor) {
  return tensor.name.substr(0, tensor.name.find('/'));
}

failure not_kept(const std::string& name, const state_table& state) {
  std::set<std::string> kept;
  for (const auto& tensor : state.tensors_of({kind::statistic, kind::square}))
    kept.insert(statistic_of(tensor));
  return {ec::bad_config, "the optimizer keeps no statistic '" + name + "': it keeps "
                            + (kept.empty() ? "none" : joined({kept.begin(), kept.end()}, ", "))};
}

} // namespace

result<std::shared_ptr<const averaged_tensors>>
averaged_tensors::of(const state_table& state, const lane& averages, std::size_t turn) {
  std::shared_ptr<averaged_tensors> out{new averaged_tensors};
  bool gradient = averages.what != lane_content::parameters; // progress is one, of many steps
  auto parameters = state.indices_of({kind::parameter}).size();
  if (averages.fragments > std::max<std::size_t>(parameters, 1))
    return failure{ec::bad_config, "the model has " + std::to_string(parameters)
                                     + " tensors, and they are to be averaged in "
                                     + std::to_string(averages.fragments)
                                     + " fragments: use no more of these than there are tensors"};
  const fragments dealt{state, averages.fragments};
  for (auto i : dealt.tensors(turn))
    out->add(state, i, gradient ? tensor_role::gradient : tensor_role::parameter);
  out->parameters_ = out->tensor_values_;
  for (const auto& name : averages.statistics) {
    auto before = out->indices_.size();
    for (auto i : state.indices_of({kind::statistic, kind::square}))
      if (statistic_of(state[i]) == name)
        out->add(state, i, tensor_role::optimizer);
    if (out->indices_.size() == before)
      return not_kept(name, state);
  }
  out->add_buffers(state);
  if (averages.what == lane_content::gradient && state.term_count() > 0) {
    out->terms_ = static_cast<std::size_t>(state.term_count());
    for (auto& info : update_terms::infos(state))
      out->infos_->push_back(std::move(info));
  }
  if (gradient)
    out->add_all(state, kind::metric, tensor_role::metric);
  auto before = out->tensor_values_;
  if (averages.gradients)
    out->add_all(state, kind::gradient, tensor_role::gradient);
  out->last_gradient_ = out->tensor_values_ - before;
  if (averages.gradients && out->last_gradient_ == 0)
    return failure{ec::bad_config, "the model does not keep the gradient of its last step, which "
                                   "--average-gradients averages"};
  out->steps_ = averages.counts_steps;
  if (out->steps_)
    out->infos_->push_back({"run/steps", step_values, tensor_role::metric});
  return std::shared_ptr<const averaged_tensors>{std::move(out)};
}

std::shared_ptr<const averaged_tensors> averaged_tensors::buffers_of(const state_table& state) {
  std::shared_ptr<averaged_tensors> out{new averaged_tensors};
  out->add_buffers(state);
  return out;
}

void averaged_tensors::add(const state_table& state, std::size_t i, tensor_role role) {
  indices_.push_back(i);
  tensor_values_ += static_cast<std::size_t>(state[i].elements());
  rules_.push_back(state[i].changes_by());
  infos_->push_back({state[i].name, state[i].elements(), role});
}

void averaged_tensors::add_buffers(const state_table& state) {
  for (auto i : state.indices_of({kind::buffer, kind::counter}))
    add(state, i, state[i].what == kind::buffer ? tensor_role::buffer : tensor_role::counter);
}

void averaged_tensors::add_all(const state_table& state, state_tensor::kind what,
                               tensor_role role) {
  for (auto i : state.indices_of({what}))
    add(state, i, role);
}

void averaged_tensors::add_change(std::span<float> values, std::span<const float> mean,
                                  std::span<const float> snapshot) const {
  auto of_model = model_value_count();
  if (snapshot.empty())
    std::copy_n(mean.begin(), of_model, values.begin());
  for (std::size_t at = 0, tensor = 0; !snapshot.empty() && at < of_model; ++tensor) {
    auto count = (*infos_)[tensor].elements;
    change_values(values.subspan(at, count), mean.subspan(at, count), snapshot.subspan(at, count),
                  rules_[tensor]);
    at += count;
  }
  auto gradient = [&](auto all) { return all.subspan(of_model, last_gradient_); };
  change_gradient(gradient(values), gradient(mean),
                  snapshot.empty() ? snapshot : gradient(snapshot));
}

} // namespace waggle
