#include "runtime/training/round_vector.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/try.hpp"
#include "runtime/training/offered_gradients.hpp"

namespace waggle {

namespace {

bool is_finite(std::span<const float> values) {
  offered_tensor all{values.data(), values.size()};
  return all_finite({&all, 1});
}

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (float v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

} // namespace

status round_vector::begin(std::shared_ptr<learner> model) {
  tensors_.clear();
  for (std::size_t turn = 0; turn < averages_.fragments; ++turn) {
    WAGGLE_TRY(found, averaged_tensors::of(model->tensors(), averages_, turn));
    tensors_.push_back(*found);
  }
  if (!of_parameters() && model->tensors().buffer_count() > 0)
    buffers_ = averaged_tensors::buffers_of(model->tensors());
  model_ = std::move(model);
  return done{};
}

std::size_t round_vector::value_count() const {
  std::size_t sum = 0;
  for (const auto& vector : tensors_)
    sum += vector->value_count();
  return sum;
}

std::vector<std::shared_ptr<const std::vector<tensor_info>>> round_vector::infos() const {
  std::vector<std::shared_ptr<const std::vector<tensor_info>>> out;
  for (const auto& vector : tensors_)
    out.push_back(vector->infos());
  return out;
}

std::shared_ptr<const float_vector> round_vector::zeros(epoch_id of) const {
  auto out = vectors_->take(tensors(of).value_count());
  std::fill(out->begin(), out->end(), 0.0F);
  return out;
}

std::shared_ptr<const float_vector> round_vector::copy(std::uint64_t steps, std::uint64_t total) {
  const auto& all = *tensors_.front(); // no fragments
  auto out = vectors_->take(all.value_count());
  auto contains = model_->copy_tensors(all.indices(), *out);
  if (!contains)
    return nullptr;
  pending_.complete(all, *contains, *out);
  if (all.counts_steps())
    write_steps(std::span{*out}.last<step_values>(), steps, total);
  return out;
}

std::optional<std::uint64_t> round_vector::take(contribution& into) {
  std::optional<std::uint64_t> dropped;
  model_->at_round(into.epoch);
  auto taken = model_->take_mean_vector(*vectors_);
  if (averages_.what == lane_content::progress && taken.samples > 0 && !is_finite(*taken.values)) {
    (void)model_->take_back();
    dropped = model_->drop_gradient();
    taken = model_->take_mean_vector(*vectors_); // nothing
  }
  if (buffers_ && taken.samples > 0) {
    pending_.forget(taken.merges);
    if (!pending_.empty()) {
      auto own = vectors_->take(taken.values->size());
      std::copy(taken.values->begin(), taken.values->end(), own->begin());
      pending_.complete(*buffers_, taken.merges,
                        std::span{*own}.subspan(tensors(into.epoch).parameter_count()));
      taken.values = std::move(own);
    }
  }
  into.own = std::move(taken.values);
  into.fills = taken.fills;
  into.samples = taken.samples;
  into.weight = static_cast<double>(taken.samples);
  if (model_->abilities().resumes)
    into.position = model_->taken_position();
  return dropped;
}

round_meaning round_vector::meaning_of(averaged_round round, const contribution& given) const {
  round_meaning out;
  auto& update = out.update = std::move(round.update);
  const auto& averaged_now = tensors(update.epoch);
  auto mean = std::exchange(update.mean, nullptr);
  auto samples = samples_of(update.by.weight);
  if (const auto& merge = averages_.merge; merge.how == lane_merge::rule::blend)
    // A mean of our samples alone would only pull us back to where we were.
    update.rate =
      given.from_state && samples != given.samples ? merge.blend_share(round.contributors) : 0;
  update.work = samples * round.contributors;
  update.position = given.position;

  out.fits = !mean || mean->size() == averaged_now.value_count();
  bool averaged = mean && out.fits && update.by.weight > 0;
  if (given.is_spoiled() && round.contributors == 1) { // ours: the others do not wait for it
    out.why_dropped = "not_finite";
  } else if (averaged) {
    auto values = std::span<const float>{*mean};
    auto gradient = averaged_now.parameter_count();
    out.norm = norm_of(values.first(gradient));
    // Each pass was finite, but their sum may overflow.
    out.finite = std::isfinite(out.norm) && is_finite(values.subspan(gradient));
    if (out.finite)
      update.mean = mean;
    else
      out.why_dropped = "not_finite";
  }
  if (averaged_now.counts_steps() && averaged) {
    update.steps = change_of_steps(std::span<const float>{*mean}.last<step_values>(),
                                   round.stepping, round.total);
    out.counts_steps = round.took_part;
  }
  if (averages_.what == lane_content::progress && given.samples > 0)
    out.drift = norm_of(std::span{*given.own}.first(averaged_now.parameter_count()));
  if (!of_parameters() || !update.mean) {
    out.samples = samples;
    if (update.mean && buffers_ && given.samples > 0) // otherwise nothing was contributed
      update.snapshot = buffers_in(*given.own, update.epoch);
  } else if (given.from_state) {
    update.snapshot = given.own;
    auto count = averaged_now.parameter_count();
    out.drift = distance(std::span{*update.mean}.first(count), std::span{*given.own}.first(count));
    if (alpha_ != 1) {
      auto target = vectors_->take(update.mean->size());
      std::size_t at = 0;
      for (const auto& tensor : *averaged_now.infos())
        for (auto end = at + tensor.elements; at < end; ++at)
          (*target)[at] = tensor.role == tensor_role::counter
                            ? (*update.mean)[at]
                            : moved_towards((*given.own)[at], (*update.mean)[at], alpha_);
      update.mean = std::move(target);
    }
  } else { // a state that is downloaded now is about as good as one with this change
    update.mean = nullptr;
  }
  if (of_parameters())
    out.norm = 0; // of parameters
  out.counted = update.mean && round.took_part;
  return out;
}

/// The buffers behind a gradient.
std::shared_ptr<const float_vector> round_vector::buffers_in(const float_vector& values,
                                                             epoch_id of) const {
  auto begin = values.begin() + static_cast<std::ptrdiff_t>(tensors(of).parameter_count());
  return std::make_shared<float_vector>(
    begin, begin + static_cast<std::ptrdiff_t>(model_->tensors().buffer_count()));
}

std::shared_ptr<const averaged_tensors> round_vector::ask(const missed_update& update) {
  pending_.ask(update.bytes());
  if (update.snapshot && of_parameters())
    pending_.add(update.mean, update.snapshot);
  else if (update.mean && buffers_)
    pending_.add(buffers_in(*update.mean, update.epoch), update.snapshot);
  return of_parameters() ? tensors_.front() : nullptr;
}

void round_vector::applied() {
  pending_.applied();
  if (buffers_ && model_->accumulated_samples() == 0)
    pending_.forget_applied(); // the next pass finds them in the buffers
}

} // namespace waggle
