#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/loop/swarm.hpp"

namespace waggle {

/// Deals the samples of a data set to the loops of a run, so that each sample of a pass enters one
/// update of the whole swarm, in an order that is shuffled by run and pass:
///
///     auto shards = waggle::shards::of(*swarm, images.size(), 3); // three passes
///     auto loop = waggle::loop::start(*swarm, options);           // or a waggle::optimizer
///     while (shards->begin())
///       for (auto batch = shards->next(32); !batch.empty(); batch = shards->next(32))
///         loop->step(gradient_of(batch), batch.size(), loss);
///
/// Each `step` is over the next samples that were handed out, in their order, so a loop may hand
/// out ahead (a queue of batches) but must not change the order or leave out a batch, also if its
/// gradient is of no use: then a step drops it, if it is not finite. What a step dropped, or a
/// member that is gone had, is handed out again. The run ends with its last pass. Which samples
/// were used is part of the run's state, and so survives a stop.
///
/// Not thread-safe: for the loop's thread.
class shards {
public:
  /// Asked every 100 ms of a wait; true ends it. May throw. Empty: whether the run is over.
  using is_over = std::function<bool()>;

  /// `samples`: of the data, 1 to 2^32; `passes`: over them, until the run ends. Both are equal on
  /// all peers. Call it before the optimizer or loop of `in` is constructed. Fails with a sentence.
  static result<shards> of(const swarm& in, std::uint64_t samples, std::uint64_t passes = 1);

  /// Begins to hand out samples of the present pass: first those that were handed out and are in no
  /// step. Waits until there are any, and so first of all for the state of the run. Returns false
  /// if the run is over. Throws std::logic_error if there is no optimizer or loop yet, or if
  /// samples were handed out again and again and no step was over them; swarm_error as `step` does.
  bool begin(const is_over& over = {});
  /// The numbers, from 0 on, of up to `most` samples. Waits for those of members that are gone.
  /// None: the pass is complete, the run is over, or all that this peer has were handed out, and
  /// more come only after a step over them: call `begin`. Throws as `begin` does.
  [[nodiscard]] std::vector<std::uint64_t> next(std::uint64_t most, const is_over& over = {});
  /// Those of them that need no wait, if any.
  [[nodiscard]] std::vector<std::uint64_t> ready(std::uint64_t most);
  [[nodiscard]] std::uint64_t passes_complete() const;

private:
  explicit shards(std::shared_ptr<swarm_session> session) : session_(std::move(session)) {}
  [[nodiscard]] bool await(const is_over& over);

  std::shared_ptr<swarm_session> session_;
  std::uint64_t pass_ = 0;        // `begin` was called in it
  std::uint64_t steps_until_ = 0; // samples of all steps before the last `begin`
  int in_vain_ = 0;               // times that all were handed out, and no step was over any
};

} // namespace waggle
