#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/allreduce/part_sum.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/averaging/round_proof.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// Interface: what a round needs from its environment. Called with the round's lock held: must not
/// block and must not call the round.
class round_port {
public:
  virtual ~round_port() = default;

  virtual void send(const peer_record& to, wire::event what, payload body) = 0;
  /// The same message to several peers, in this order.
  virtual void send_all(std::span<const peer_record* const> to, const wire::event& what,
                        const payload& body) {
    for (const auto* peer : to)
      send(*peer, what, body);
  }
  /// Body bytes that were written on the link to `peer` so far, of whatever kind; 0: not known.
  [[nodiscard]] virtual std::uint64_t body_bytes_written(const peer_id& peer) const {
    (void)peer;
    return 0;
  }
  /// Lets another thread reduce the part and pass the sum to round_engine::on_reduced. False: there
  /// is none; the caller reduces it.
  virtual bool reduce(const reduce_part& what) = 0;
  /// 32 bytes that nobody else can know or predict, the same for the same arguments.
  [[nodiscard]] virtual digest secret(const round_id& round, std::uint32_t view) = 0;
  [[nodiscard]] virtual signature sign(std::string_view statement) = 0;
  [[nodiscard]] virtual bool verify(const peer_record& by, std::string_view statement,
                                    const signature& its) = 0;
  virtual void count_part() = 0;
  virtual void count_check(bool right) { (void)right; }
  virtual void count_refused(ec why) = 0;
  virtual void log(const std::string& what) = 0;
  virtual void finished(round_finished how) = 0;
};

} // namespace waggle
