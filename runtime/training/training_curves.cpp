#include "runtime/training/training_curves.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLCV01";

constexpr std::array<curve_row, curve_count> table{{
  {"loss", "Smoothed loss of a peer.", better::lower,
   "the loop does not report its loss, or no epoch has ended yet"},
  {"eval_loss", "Loss of the shared weights on held-out data.", better::lower,
   "no peer of this run has --eval-data that this one knows of, or nothing was measured yet"},
  {"eval_accuracy", "Share of the predictions on held-out data that are right.", better::higher,
   "no peer of this run has --eval-data that this one knows of, or nothing was measured yet"},
  {"learning_rate", "Learning rate.", better::neither, "no epoch has ended yet"},
  {"samples_per_second", "Used samples by wall time, of all peers.", better::neither,
   "no epoch has ended yet"},
  {"peers", "Peers that train.", better::neither, "no epoch has ended yet"},
}};

/// Adds a point; as a part of the last one, if that then covers no more than so many epochs.
void place(std::vector<curve_point>& points, const curve_point& next, std::uint64_t epochs) {
  auto n = points.size();
  if (n < 2 || next.epoch.value() - points[n - 2].epoch.value() > epochs)
    return points.push_back(next);
  auto& last = points.back();
  auto joined = next;
  for (std::size_t i = 0; i < curve_count; ++i) {
    double x = last.values[i];
    double y = next.values[i];
    auto of_x = static_cast<double>(last.epoch.value() - points[n - 2].epoch.value());
    auto of_y = static_cast<double>(next.epoch.value() - last.epoch.value());
    joined.values[i] = std::isnan(y)   ? last.values[i]
                       : std::isnan(x) ? next.values[i]
                                       : static_cast<float>((x * of_x + y * of_y) / (of_x + of_y));
  }
  last = joined;
}

} // namespace

std::span<const curve_row> curve_table() {
  return table;
}

void training_curves::add(curve_point end) {
  remove_from(end.epoch);
  for (std::size_t i = 0; i < curve_count; ++i) {
    if (!std::isfinite(end.values[i]))
      end.values[i] = std::numeric_limits<float>::quiet_NaN();
    note_best(static_cast<curve>(i), end.epoch, end.values[i]);
  }
  auto before = points_.empty() ? curve_point{} : points_.back();
  end.samples = std::min(std::max(end.samples, before.samples), samples_max);
  end.t = std::max(end.t, before.t);
  place(points_, end, epochs_per_point());
  if (points_.size() > points_max)
    thin(points_max);
}

void training_curves::evaluate(epoch_id epoch, double loss, double accuracy) {
  auto at = std::ranges::lower_bound(points_, epoch, {}, &curve_point::epoch);
  if (at == points_.end())
    return;
  auto set = [&](curve which, double value) {
    auto number = static_cast<float>(value);
    if (!std::isfinite(number))
      return;
    auto& known = (*at)[which];
    known = std::isnan(known) ? number : (known + number) / 2;
    note_best(which, epoch, number);
  };
  set(curve::eval_loss, loss);
  set(curve::eval_accuracy, accuracy);
}

void training_curves::cut(epoch_id last_kept) {
  if (last() > last_kept)
    remove_from(last_kept.next());
}

void training_curves::remove_from(epoch_id first) {
  while (!points_.empty() && points_.back().epoch >= first)
    points_.pop_back();
  for (std::size_t i = 0; i < curve_count; ++i)
    if (best_[i] && best_[i]->epoch >= first) {
      best_[i].reset();
      for (const auto& point : points_)
        note_best(static_cast<curve>(i), point.epoch, point.values[i]);
    }
}

void training_curves::insert(const training_curves& theirs, std::optional<epoch_id> after,
                             epoch_id until, std::int64_t now) {
  auto inserted = [&](epoch_id epoch) { return (!after || epoch > *after) && epoch <= until; };
  if (std::ranges::none_of(theirs.points_, inserted, &curve_point::epoch))
    return;
  auto ours = std::exchange(*this, {});
  auto add_those = [&](const training_curves& from, auto wanted) {
    for (auto point : from.points_)
      if (wanted(point.epoch)) {
        point.t = std::min(point.t, now);
        add(point);
      }
    for (std::size_t i = 0; i < curve_count; ++i) {
      const auto& best = from.best_[i];
      if (!best || !wanted(best->epoch))
        continue;
      // Its point has it as a part of a mean, or at the end of several epochs.
      if (best_[i] && best_[i]->value == best->value)
        best_[i].reset();
      note_best(static_cast<curve>(i), best->epoch, best->value);
    }
  };
  add_those(ours, [&](epoch_id epoch) { return after && epoch <= *after; });
  add_those(theirs, inserted);
  add_those(ours, [&](epoch_id epoch) { return epoch > until; });
}

std::optional<training_curves::best_value> training_curves::best(curve which) const {
  return best_[static_cast<std::size_t>(which)];
}

void training_curves::note_best(curve which, epoch_id epoch, float value) {
  auto i = static_cast<std::size_t>(which);
  auto order = table[i].best;
  if (order == better::neither || std::isnan(value))
    return;
  auto& known = best_[i];
  if (!known || (order == better::lower ? value < known->value : value > known->value))
    known = best_value{epoch, value};
}

/// A power of two, with which the whole run has its room.
std::uint64_t training_curves::epochs_per_point() const {
  if (points_.empty())
    return 1;
  auto epochs = last().value() - points_.front().epoch.value();
  return std::bit_ceil(std::max<std::uint64_t>(1, (epochs + points_max - 1) / points_max));
}

void training_curves::thin(std::size_t most) {
  for (auto epochs = epochs_per_point(); points_.size() > most; epochs *= 2) {
    std::vector<curve_point> fewer;
    for (const auto& point : points_)
      place(fewer, point, epochs);
    points_ = std::move(fewer);
  }
}

training_curves training_curves::thinned(std::size_t most) const {
  WAGGLE_CHECK(most >= 2, std::to_string(most));
  auto out = *this;
  out.thin(most);
  return out;
}

std::string training_curves::encode() const {
  constexpr auto none = std::numeric_limits<float>::quiet_NaN();
  byte_writer rest;
  for (const auto& each : best_)
    rest.put(each ? each->epoch : epoch_id{}, each ? each->value : none);
  rest.put(static_cast<std::uint32_t>(points_.size()));
  for (const auto& point : points_)
    rest.put(point.epoch, point.samples, point.t, point.values);
  byte_writer out;
  out.put_raw(magic).put(sha256(rest.text())).put_raw(rest.text());
  return out.take();
}

result<training_curves> training_curves::decode(std::string_view bytes) {
  byte_reader in{bytes};
  if (in.get_raw(magic.size()) != magic || bytes.size() > bytes_of(points_max))
    return failure{ec::malformed, "these are no curves of this version"};
  auto hash = in.get<digest>();
  if (!in.ok() || sha256(bytes.substr(bytes.size() - in.left())) != hash)
    return failure{ec::hash_mismatch, "the curves are damaged"};
  auto bad = [](const char* what) {
    return failure{ec::malformed, std::string{"curves: "} + what};
  };
  training_curves out;
  for (std::size_t i = 0; i < curve_count; ++i) {
    auto epoch = in.get<epoch_id>();
    auto value = in.get<float>();
    if (!std::isnan(value) && table[i].best != better::neither)
      out.best_[i] = best_value{epoch, value};
  }
  auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > points_max || bytes.size() != bytes_of(count))
    return bad("another number of points than there are");
  for (std::uint32_t i = 0; i < count; ++i) {
    curve_point point;
    in.read(point.epoch, point.samples, point.t, point.values);
    bool bounded = point.epoch.value() <= epoch_max && point.samples <= samples_max && point.t >= 0
                   && std::ranges::none_of(point.values, [](float x) { return std::isinf(x); });
    if (!bounded)
      return bad("a value out of bounds");
    if (!out.points_.empty()) {
      const auto& before = out.points_.back();
      if (point.epoch <= before.epoch || point.samples < before.samples || point.t < before.t)
        return bad("points that do not ascend");
    }
    out.points_.push_back(point);
  }
  for (const auto& each : out.best_)
    if (each && (!std::isfinite(each->value) || out.points_.empty() || each->epoch > out.last()))
      return bad("a best value of none of its epochs");
  return out;
}

} // namespace waggle
