#include "runtime/training/left_progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::size_t signed_bytes = 72; // of which the last 32 are a hash of the rest
constexpr std::size_t asked_max = 4;

digest place_of(std::string_view run, const digest& branch) {
  return sha256_stream{}.add("waggle left progress").add(run).add(branch.view()).finish();
}

} // namespace

result<digest> seal_left(const own_progress& what, const identity& by, std::string_view run,
                         const digest& branch, byte_store& into) {
  WAGGLE_CHECK(!what.partial.sum && !what.pending, "they belong to a state of this peer");
  auto head = head_of(what, place_of(run, branch));
  byte_writer bytes;
  bytes.put(by.key()).put(by.sign(head.substr(0, signed_bytes))).put_raw(head);
  auto begin = as_byte_span(bytes.text());
  auto rest = what.residual ? std::as_bytes(std::span{*what.residual}) : byte_span{};
  WAGGLE_TRY(head_written, into.write(0, begin));
  WAGGLE_TRY(written, into.write(begin.size(), rest));
  return sha256_stream{}.add(begin).add(rest).finish();
}

result<own_progress> open_left(std::string_view bytes, const peer_id& owner, std::string_view run,
                               const digest& branch, std::uint64_t values,
                               const signature_verifier& verifier) {
  byte_reader in{bytes};
  auto key = in.get<public_key>();
  auto by = in.get<signature>();
  if (!in.ok() || in.left() < signed_bytes)
    return failure{ec::malformed, "it is cut off"};
  auto rest = bytes.substr(bytes.size() - in.left());
  if (peer_id_of(key) != owner
      || !verifier.verify(key, as_byte_span(rest.substr(0, signed_bytes)), by))
    return failure{ec::bad_signature, "that peer has not signed it"};
  auto what = decode_own_progress(rest, place_of(run, branch));
  if (!what)
    return what.error().code == ec::wrong_run
             ? failure{ec::wrong_run, "it belongs to another run or history"}
             : what.error();
  if (what->partial.sum || what->pending)
    return failure{ec::malformed, "it has a gradient, which belongs to a state"};
  if (what->residual && what->residual->size() != values)
    return failure{ec::malformed, "its residual has another length than the vector of this run"};
  if (what->residual
      && !std::ranges::all_of(*what->residual, [](float x) { return std::isfinite(x); }))
    return failure{ec::malformed, "its residual is not finite"};
  return what;
}

std::string text_of(const own_progress& left) {
  std::string out;
  if (left.residual) {
    double squares = 0;
    for (double x : *left.residual)
      squares += x * x;
    char norm[32];
    std::snprintf(norm, sizeof norm, "%.3g", std::sqrt(squares));
    out = "the errors of its codecs (" + std::to_string(left.residual->size()) + " values, norm "
          + norm + ")";
  }
  if (!left.position.empty())
    out += (out.empty() ? "" : " and ") + std::string{"its place in the data"};
  return out;
}

std::vector<peer_record> neighbours_of(const peer_id& owner, std::vector<peer_record> members) {
  auto distance = [&owner](const peer_record& peer) {
    auto far = peer.id.bytes;
    for (std::size_t i = 0; i < far.size(); ++i)
      far[i] ^= owner.bytes[i];
    return std::pair{peer.client_mode, far};
  };
  std::ranges::sort(members, {}, distance);
  members.resize(std::min(members.size(), asked_max));
  return members;
}

status left_progress::expect(const peer_id& owner, steady_time now) {
  drop_old(now);
  auto before = all_.find(owner);
  if (before != all_.end() && !before->second.what.bytes)
    return failure{ec::overloaded, "it is on its way already"};
  if (before == all_.end() && all_.size() >= kept_max)
    return failure{ec::overloaded, "this peer keeps enough of others that have left"};
  all_[owner] = {.since = now};
  return done{};
}

void left_progress::keep(const peer_id& owner, entry what, steady_time now) {
  all_[owner] = {.what = std::move(what), .since = now};
}

void left_progress::drop_old(steady_time now) {
  std::erase_if(all_, [now](const auto& each) {
    return each.second.what.bytes && now - each.second.since >= kept_for;
  });
}

void left_progress::contributed(const std::vector<peer_id>& peers, epoch_id epoch) {
  for (const auto& peer : peers)
    if (auto found = all_.find(peer);
        found != all_.end() && found->second.what.bytes && epoch >= found->second.what.epoch)
      all_.erase(found);
}

result<left_progress::entry> left_progress::give(const peer_id& owner, const digest& branch,
                                                 const peer_id& to, steady_time now) {
  drop_old(now);
  auto found = all_.find(owner);
  if (found == all_.end() || !found->second.what.bytes)
    return failure{ec::not_found, "that peer has left nothing here"};
  if (found->second.what.branch != branch)
    return failure{ec::wrong_run, "what that peer has left belongs to another history"};
  if (to != owner && std::exchange(found->second.given, true))
    return failure{ec::not_found, "another peer has got it already"};
  return found->second.what;
}

} // namespace waggle
