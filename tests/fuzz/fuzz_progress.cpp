// The value of a progress record with a valid signature: its owner may write any bytes.

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/training_state.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_span bytes{reinterpret_cast<const std::byte*>(data), size};
  (void)decode_state(bytes); // a donor's state is untrusted as well
  peer_id who;
  who.bytes[0] = std::byte{1};
  auto report = decode_progress({}, who, as_string_view(bytes));
  if (!report)
    return 0;
  auto again = decode_progress({}, who, encode_progress(*report));
  if (!again || again->epoch != report->epoch || again->samples != report->samples
      || again->time != report->time || again->who.addresses != report->who.addresses)
    std::abort();
  const auto now = swarm_time_from(1'700'000'000'000'000'000);
  ledger_options options;
  progress_ledger ledger{{}, options};
  progress_report own{.epoch = epoch_id{3}, .samples = 10, .samples_per_second = 5, .time = now};
  (void)ledger.record(*report, now + 60s);
  auto view = ledger.view(own, now);
  if (std::isnan(view.eta_seconds) || view.eta_seconds < 0
      || !(view.refresh_seconds >= seconds_of(options.refresh_min))
      || !(view.refresh_seconds <= seconds_of(options.refresh_max)))
    std::abort();
  return 0;
}
