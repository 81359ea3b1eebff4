#include "runtime/training/flight.hpp"

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

std::string name_of(flight::phase p) {
  constexpr std::string_view names[]{"idle", "held", "searching", "averaging", "ended"};
  return std::string{names[static_cast<std::size_t>(p)]};
}

} // namespace

contribution resumed(const own_progress& kept, epoch_id epoch) {
  return {.epoch = epoch,
          .own = kept.pending,
          .samples = kept.pending_samples,
          .weight = static_cast<double>(kept.pending_samples),
          .from_state = true,
          .resumed = true,
          .position = kept.pending_position};
}

void flight::begin(contribution given, std::uint64_t own_step) {
  WAGGLE_CHECK(phase_ == phase::idle, "one flight at a time: " + name_of(phase_));
  begun_ = own_step;
  last_epoch_ = given.epoch.value();
  in_flight_ = given.samples;
  given.steps = given.from_state ? uncounted_steps_ : 0; // the others do not get them
  given.counts = counts_;
  given_ = std::move(given);
}

void flight::hold(contribution given, std::uint64_t own_step) {
  WAGGLE_CHECK(given.own != nullptr, "nothing is copied");
  begin(std::move(given), own_step);
  phase_ = phase::held;
}

std::uint64_t flight::search(contribution given, std::uint64_t own_step) {
  begin(std::move(given), own_step);
  phase_ = phase::searching;
  called_ = false;
  return ++number_;
}

std::uint64_t flight::found(std::shared_ptr<const float_vector> own, bool from_state) {
  WAGGLE_CHECK(phase_ == phase::searching, name_of(phase_));
  given_->own = std::move(own);
  given_->steps = from_state ? uncounted_steps_ : 0;
  if (!from_state) {
    given_->from_state = false;
    given_->weight = 0;
  }
  phase_ = phase::averaging;
  called_ = false;
  return ++number_;
}

std::uint64_t flight::send() {
  WAGGLE_CHECK(phase_ == phase::held, name_of(phase_));
  phase_ = phase::averaging;
  called_ = false;
  return ++number_;
}

void flight::interrupt() {
  WAGGLE_CHECK(phase_ != phase::searching && phase_ != phase::ended, name_of(phase_));
  if (phase_ == phase::averaging)
    phase_ = phase::held;
  called_ = false;
  ++number_;
}

void flight::end(round_result result, bool alone) {
  WAGGLE_CHECK(phase_ == phase::averaging, name_of(phase_));
  phase_ = phase::ended;
  called_ = false;
  result_ = std::move(result);
  if (!alone)
    given_.reset();
}

round_result flight::take_result() {
  WAGGLE_CHECK(phase_ == phase::ended && result_, name_of(phase_));
  return *std::exchange(result_, std::nullopt);
}

std::uint64_t flight::settle() {
  WAGGLE_CHECK(phase_ != phase::idle, name_of(phase_));
  phase_ = phase::idle;
  ++number_;
  given_.reset();
  result_.reset();
  return std::exchange(in_flight_, 0);
}

void flight::hold_again() {
  WAGGLE_CHECK(phase_ == phase::ended && given_, name_of(phase_));
  result_.reset();
  phase_ = phase::held;
}

void flight::count_again() {
  if (!given_)
    return;
  counts_.samples += given_->counts.samples;
  counts_.passes += given_->counts.passes;
}

void flight::resume(const own_progress& kept) {
  resumed_ = {kept.local_samples, kept.local_passes};
  uncounted_steps_ = kept.uncounted_steps;
}

void flight::save(own_progress& out, bool local_steps) const {
  if (local_steps) {
    out.local_samples = counts_.samples;
    out.local_passes = counts_.passes;
    out.uncounted_steps = uncounted_steps_;
  }
  if (given_) {
    out.pending = given_->own;
    out.pending_samples = given_->samples;
    out.pending_position = given_->position;
  }
}

} // namespace waggle
