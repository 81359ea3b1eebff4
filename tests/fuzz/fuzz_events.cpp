// An event log, which anybody may have written, and the id that a client of a stream sends.

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "runtime/watch/event_stream.hpp"
#include "runtime/watch/timeline.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text{reinterpret_cast<const char*>(data), size};
  timeline all;
  std::istringstream log{text};
  all.read(log);
  if (all.align())
    for (const auto& event : all.events()) {
      if (!parse_event(event.line) || text_of(event).empty())
        std::abort();
    }
  auto ring = std::make_shared<event_ring>("ab");
  ring->push(watch::event_kind::other, "\"n\":1");
  event_stream stream{
    ring, {[] { return std::string{"{"}; }, [] { return std::string{"{}"}; }, {}}, text};
  if (stream.next({}).empty())
    std::abort();
  return 0;
}
