// The matchmaker chooses the bucket in which it searches: how many bits its keys have.

#include <algorithm>

#include <spdlog/logger.h>

#include "actors/averaging/matchmaker.hpp"
#include "actors/caf_error.hpp"

namespace waggle {

/// Reads the bucket loads of other peers, then begins the search, even if that fails.
void matchmaker::look_at_loads(waiting wanted) {
  next_ = std::move(wanted);
  auto patience = std::min(config_.request_timeout, milliseconds{next_->what.deadline / 2});
  find_records question{record_kind::group_member, loads_->name(), true, patience};
  request(dht_, patience + 1s, question)
    .then(
      [this, search = searches_](const found_records& found) { on_loads(search, found.records); },
      [this, search = searches_](const caf::error& why) {
        ctx_.log->debug("could not read the bucket loads: {}", to_string(from_caf(why)));
        on_loads(search, {});
      });
}

void matchmaker::on_loads(std::uint64_t search, const std::vector<record>& reported) {
  if (!next_ || searches_ != search)
    return;
  auto wanted = *std::exchange(next_, std::nullopt);
  follow(loads_->known(reported));
  start(std::move(wanted));
}

/// Gives our key as many bits as the keys of the other peers have.
void matchmaker::follow(const std::vector<bucket_load>& loads) {
  auto length = elastic_length(loads, target_size(), min_size());
  if (!length || *length == key_->bits().size())
    return;
  key_->resize(*length, [this] { return static_cast<unsigned>(random_.below(2)); });
  ctx_.log->info("matchmaking under {} uses keys of {} bits from now on", config_.prefix, *length);
}

/// Nobody else was in our bucket, and perhaps nobody will be: groups whose target size is no power
/// of two move to some of the buckets only.
void matchmaker::leave_empty_bucket() {
  auto length = key_->bits().size();
  if (!config_.elastic_bits || length == 0)
    return;
  key_->resize(0, [] { return 0U; });
  key_->resize(length, [this] { return static_cast<unsigned>(random_.below(2)); });
}

/// Publishes how many peers searched for a group in our bucket.
void matchmaker::announce_load() {
  if (!loads_)
    return;
  bucket_load seen{current_->key.bits().size(), current_->seen.size() + 1};
  auto now = ctx_.wall->now();
  publish(loads_->announce(seen, now + config_.load_memory, now));
}

} // namespace waggle
