#include "runtime/status/run_curves.hpp"

#include <cmath>

#include <fmt/format.h>

#include "runtime/core/try.hpp"
#include "runtime/watch/events.hpp"

namespace waggle {

namespace {

/// Of all peers; NaN: none is known.
double used_samples_per_second(const swarm_progress& run) {
  double sum = 0;
  bool known = false;
  for (const auto& peer : run.peers)
    if (const auto& rate = peer.vitals.samples_per_second) {
      sum += *rate;
      known = true;
    }
  return known ? sum : std::numeric_limits<double>::quiet_NaN();
}

template <class Value>
void add_list(std::string& out, std::string_view name, const training_curves& from, Value value) {
  fmt::format_to(std::back_inserter(out), "\"{}\":[", name);
  auto separator = "";
  for (const auto& point : from.points()) {
    out += std::exchange(separator, ",");
    if constexpr (std::is_floating_point_v<decltype(value(point))>) {
      if (auto x = value(point); std::isnan(x))
        out += "null";
      else
        fmt::format_to(std::back_inserter(out), "{:.5g}", x);
    } else {
      fmt::format_to(std::back_inserter(out), "{}", value(point));
    }
  }
  out += "],";
}

} // namespace

void run_curves::on_status(const training_status& now_is, const swarm_progress& run,
                           swarm_time now) {
  if (now_is.phase == trainer_phase::starting)
    return;
  std::lock_guard guard{mutex_};
  auto before = last_;
  last_ = {now_is.epoch, now_is.past};
  if (before) {
    bool moved = !before->past.branch.is_zero() && now_is.past.branch != before->past.branch
                 && now_is.past.parent != before->past.branch;
    if (moved) // to a history that has nothing of ours since the fork
      curves_.cut(before->past.forked_at);
    if (now_is.epoch < before->epoch)
      curves_.cut(now_is.epoch);
    if (now_is.epoch > before->epoch)
      add(now_is, before->epoch, run, now);
  }
  if (std::isfinite(now_is.eval_loss) && evaluated_ != now_is.eval_epoch) {
    evaluated_ = now_is.eval_epoch;
    curves_.evaluate(now_is.eval_epoch, now_is.eval_loss, now_is.eval_accuracy);
  }
}

/// The epochs from `before` on have ended.
void run_curves::add(const training_status& now_is, epoch_id before, const swarm_progress& run,
                     swarm_time now) {
  bool empty = curves_.points().empty();
  if (!empty && now_is.epoch <= curves_.last()) // others have seen them, too
    return;
  curve_point end{now_is.epoch, 0, watch::unix_ms(now)};
  bool begins = before == epoch_id{} && now_is.state_downloads == 0;
  if (empty && begins && std::isfinite(now_is.first_loss)) {
    curve_point first{epoch_id{}, 0, end.t};
    first[curve::loss] = static_cast<float>(now_is.first_loss);
    curves_.add(first);
  }
  auto known = curves_.points().empty() ? curve_point{} : curves_.points().back();
  // The batch of the last epoch stands for those that no status was sent for.
  end.samples = known.samples + now_is.effective_batch * (end.epoch.value() - known.epoch.value());
  end[curve::loss] = static_cast<float>(now_is.loss);
  if (now_is.learning_rate != 0 || now_is.samples_used != 0)
    end[curve::learning_rate] = static_cast<float>(now_is.learning_rate);
  auto rate = used_samples_per_second(run);
  end[curve::samples_per_second] =
    static_cast<float>(std::isnan(rate) ? now_is.samples_per_second : rate);
  if (run.num_peers > 0)
    end[curve::peers] = static_cast<float>(run.num_peers);
  curves_.add(end);
}

status run_curves::take(std::string_view image, std::optional<epoch_id> after, epoch_id until,
                        swarm_time now) {
  WAGGLE_TRY(theirs, training_curves::decode(image));
  std::lock_guard guard{mutex_};
  curves_.insert(*theirs, after, until, watch::unix_ms(now));
  return done{};
}

std::optional<epoch_id> run_curves::last() const {
  std::lock_guard guard{mutex_};
  return curves_.points().empty() ? std::nullopt : std::optional{curves_.last()};
}

std::string run_curves::image(std::size_t points) const {
  std::lock_guard guard{mutex_};
  return curves_.points().empty() ? std::string{} : curves_.thinned(points).encode();
}

std::string run_curves::json(std::size_t points) const {
  auto shown = [&] {
    std::lock_guard guard{mutex_};
    return curves_.thinned(points);
  }();
  std::string out = "{";
  add_list(out, "epoch", shown, [](const curve_point& p) { return p.epoch.value(); });
  add_list(out, "samples", shown, [](const curve_point& p) { return p.samples; });
  add_list(out, "t", shown, [](const curve_point& p) { return p.t; });
  out.reserve(out.size() * 4);
  std::string best;
  for (std::size_t i = 0; i < curve_count; ++i) {
    auto which = static_cast<curve>(i);
    auto name = curve_table()[i].name;
    add_list(out, name, shown, [&](const curve_point& p) { return p[which]; });
    if (auto found = shown.best(which))
      best += fmt::format("{}\"{}\":{{\"epoch\":{},\"value\":{:.5g}}}", best.empty() ? "" : ",",
                          name, found->epoch.value(), found->value);
  }
  return out + "\"best\":{" + best + "}}\n";
}

} // namespace waggle
