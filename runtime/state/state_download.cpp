#include "runtime/state/state_download.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

status state_download::check(const state_offer& offer) const {
  if (offer.bytes == 0 || offer.chunk_bytes < options_.chunk_bytes_min
      || offer.chunk_bytes > options_.chunk_bytes_max)
    return failure{ec::protocol_violation, "an empty state, or a chunk size out of bounds"};
  if (offer.bytes > options_.bytes_max)
    return failure{ec::oversize, "a state of " + std::to_string(offer.bytes)
                                   + " bytes: the run's has at most "
                                   + std::to_string(options_.bytes_max)};
  if ((offer.bytes - 1) / offer.chunk_bytes >= options_.chunks_max)
    return failure{ec::oversize,
                   "a state in more than " + std::to_string(options_.chunks_max) + " chunks"};
  return done{};
}

status state_download::accept(const state_offer& offer) {
  WAGGLE_TRY(good, check(offer));
  if (offer_ && offer_->content == offer.content && offer_->bytes == offer.bytes
      && offer_->chunk_bytes == offer.chunk_bytes) { // another donor of the same state
    offer_ = offer; // the hash does not cover the rest: this donor answers for it
    return done{};
  }
  WAGGLE_TRY(made, make_store_()); // grows with what arrives, so that an offer alone costs nothing
  if (auto room = (*made)->room(); offer.bytes > room / 2)
    return failure{ec::io_error, "a state of " + std::to_string(offer.bytes)
                                   + " bytes would fill more than half of the "
                                   + std::to_string(room)
                                   + " bytes that are free in the data folder: make room there, or "
                                     "choose another --data-dir"};
  bytes_ = std::move(*made);
  offer_ = offer;
  auto count = (offer.bytes + offer.chunk_bytes - 1) / offer.chunk_bytes;
  chunks_.assign(count, chunk_state::missing);
  missing_ = count;
  first_missing_ = 0;
  asked_ = 0;
  return done{};
}

std::size_t state_download::size_of(std::uint32_t index) const {
  auto begin = std::uint64_t{index} * offer_->chunk_bytes;
  return static_cast<std::size_t>(
    std::min<std::uint64_t>(offer_->chunk_bytes, offer_->bytes - begin));
}

std::vector<std::uint32_t> state_download::next() {
  std::vector<std::uint32_t> out;
  for (auto& i = first_missing_; i < chunks_.size() && asked_ < window_; ++i) {
    if (chunks_[i] != chunk_state::missing)
      continue;
    if (i + 1 == chunks_.size() && missing_ > 1)
      break; // who has the last chunk has all, for the donor
    chunks_[i] = chunk_state::asked;
    ++asked_;
    out.push_back(i);
  }
  return out;
}

status state_download::chunk(std::uint32_t index, byte_span bytes, steady_time::duration took) {
  if (!offer_ || index >= chunks_.size() || chunks_[index] != chunk_state::asked
      || bytes.size() != size_of(index))
    return failure{ec::wrong_shape, "a chunk that was not requested, or of the wrong length"};
  WAGGLE_TRY(written, bytes_->write(std::uint64_t{index} * offer_->chunk_bytes, bytes));
  chunks_[index] = chunk_state::here;
  --asked_;
  --missing_;
  adapt(took);
  return done{};
}

void state_download::adapt(steady_time::duration took) {
  if (settling_ > 0) {
    --settling_;
  } else if (took > options_.slow) {
    window_ = std::max(options_.window_min, window_ / 2);
    settling_ = asked_;
  } else if (took < options_.fast) {
    window_ = std::min(options_.window_max, window_ + 1);
  }
}

bool state_download::postponed(std::uint32_t index) {
  if (index < chunks_.size() && chunks_[index] == chunk_state::asked) {
    chunks_[index] = chunk_state::missing;
    first_missing_ = std::min(first_missing_, index);
    --asked_;
    window_ = std::max(options_.window_min, std::min(window_, asked_));
    settling_ = std::min(settling_, asked_);
    crowded_ = true;
  }
  return asked_ > 0;
}

void state_download::interrupted() {
  std::replace(chunks_.begin(), chunks_.end(), chunk_state::asked, chunk_state::missing);
  first_missing_ = 0;
  asked_ = 0;
  settling_ = 0;
  if (std::exchange(crowded_, false)) // the next donor may have room
    window_ = std::max(window_, options_.window);
}

result<std::shared_ptr<const byte_source>> state_download::finish() {
  auto offer = *offer_;
  std::shared_ptr<const byte_source> whole = std::exchange(bytes_, nullptr);
  offer_.reset();
  chunks_.clear();
  missing_ = 0;
  WAGGLE_TRY(hash, sha256_of(*whole, 0, whole->size()));
  if (*hash != offer.content)
    return failure{ec::hash_mismatch, "the bytes do not have the announced hash"};
  return whole;
}

double state_download::progress() const {
  if (chunks_.empty())
    return 0;
  return 1 - static_cast<double>(missing_) / static_cast<double>(chunks_.size());
}

} // namespace waggle
