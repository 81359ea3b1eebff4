#pragma once

// Averages tensors with other peers. Link waggle::actors.

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/codec/averaged_tensors.hpp"
#include "waggle/node.hpp"
#include "waggle/step.hpp"

namespace waggle {

/// One averager of a peer. Thread-safe, but one step at a time: a second one fails with
/// ec::overloaded. Keeps the peer's threads alive, but not the peer.
class averager {
public:
  /// One that the peer has (node_options::averagers, or `add`), without its tensors. Fails with
  /// ec::bad_config.
  static result<averager> of(const node& peer, const std::string& name);
  /// Adds one while the peer runs. Peers average the same tensors, by name, type and shape, in the
  /// same order. Fails with ec::bad_config and the option or the tensor, or if the peer has one of
  /// this name.
  static result<averager> add(const node& peer, const averager_options& options,
                              std::vector<averaged_tensor> tensors = {});
  /// Ends it: a round that runs fails, other peers go on without this one, and the name is free
  /// again. Fails with ec::bad_config if it has ended.
  status end();

  /// Replaces the tensors by the weighted mean over the peers that average now: the same bytes on
  /// each of them, with an alpha of 1. Waits at most a second longer than `timeout`. If it fails,
  /// the tensors are unchanged: ec::timeout, nobody_declared, too_few, schema_mismatch (and in
  /// which tensor), non_finite, bad_weight, shutting_down, …
  [[nodiscard]] result<average_report> step(const average_options& options = {});
  /// The same without waiting. The tensors are read now, or by `allow_allreduce`, and written by
  /// step_control::result; between, they are the caller's.
  [[nodiscard]] result<step_control> begin(const average_options& options = {});
  /// The same for an averager without tensors: peers average vectors of the same name and length.
  [[nodiscard]] result<average_report> average(std::span<float> values,
                                               const average_options& options = {});
  /// While it is held, no other thread reads or writes the tensors. Release it before the
  /// averager's end.
  [[nodiscard]] std::unique_lock<std::mutex> lock() const;

  /// The bucket in which the next step looks for partners, as digits 0 and 1. It changes with each
  /// group, so that averages mix through the swarm. Fails with ec::bad_config.
  [[nodiscard]] result<std::string> group_bits() const;
  status set_group_bits(const std::string& bits);

  /// Downloads what another averager of this name gives, which shares its state: from the one with
  /// the highest priority, or the next one if it is lost. Waits until there is one. Changes no
  /// tensors. Fails with ec::no_donor after `timeout`, at once with ec::not_owner if all refuse,
  /// with ec::oversize above `bytes_max` bytes, …
  [[nodiscard]] result<averager_state>
  load_state_from_peers(std::chrono::milliseconds timeout = std::chrono::seconds{60},
                        std::uint64_t bytes_max = 1ULL << 30U) const;
  /// Changes averager_options::allow_state_sharing and state_sharing_priority from now on. Peers
  /// that find no other one are told at once that this one refuses. Fails with ec::bad_config.
  status allow_state_sharing(bool allowed);
  status set_state_sharing_priority(double priority);

private:
  struct shared; // by all copies of the object
  averager(std::shared_ptr<running_node> peer, std::string name, std::shared_ptr<shared> tensors)
    : peer_(std::move(peer)), name_(std::move(name)), shared_(std::move(tensors)) {}

  std::shared_ptr<running_node> peer_;
  std::string name_;
  std::shared_ptr<shared> shared_;
};

} // namespace waggle
