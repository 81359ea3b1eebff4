#include <cstdint>
#include <cstdlib>

#include "runtime/averaging/part_table.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/wire/message_fields.hpp"
#include "waggle_wire.pb.h"

using namespace waggle;

template <class T>
static bool read(const wire::Message& raw, T& out) {
  wire::reader io{raw};
  fields(wire::of<T>{}, io, out);
  return io.why() == ec::none;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto verifier = make_plain_verifier();
  static record_store store{1_MiB};
  const auto now = swarm_time_from(1'700'000'000'000'000'000);
  proto::Record raw;
  if (record entry; raw.ParseFromArray(data, static_cast<int>(size)) && read(raw, entry)) {
    (void)validate_record("demo", entry, now, *verifier);
    (void)store.put(record_key("demo", entry.kind, entry.name), entry, now);
    if (store.bytes() > 1_MiB)
      std::abort();
  }
  proto::Plan raw_plan;
  if (round_plan plan;
      raw_plan.ParseFromArray(data, static_cast<int>(size)) && read(raw_plan, plan)) {
    part_table parts{plan};
    std::uint64_t covered = 0;
    for (std::size_t i = 0; i < parts.size(); ++i)
      covered += parts[i].count;
    if (covered != plan.elements || parts.size() > parts_max)
      std::abort();
  }
  return 0;
}
