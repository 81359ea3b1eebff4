#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/codec/codec_choice.hpp"
#include "runtime/codec/part_reader.hpp"

using namespace waggle;

namespace {

void must(bool holds) {
  if (!holds)
    std::abort();
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// Untrusted bytes as an encoded part of so many values: refused, or decoded to the same values by
/// every path.
void decode_as(codec_id codec, byte_span bytes, std::size_t elements) {
  auto reader = part_reader::open(codec, bytes, elements);
  auto portable = part_reader::open(codec, bytes, elements, instructions::portable);
  must(reader.ok() == portable.ok());
  if (!reader)
    return;
  std::vector<float> whole(elements);
  std::vector<float> other(elements);
  reader->read(0, whole);
  portable->read(0, other);
  must(same(whole, other));
  auto middle = elements / 3;
  std::vector<float> rest(elements - middle);
  reader->read(middle, rest);
  must(same(rest, {whole.begin() + static_cast<std::ptrdiff_t>(middle), whole.end()}));
}

/// Any floats: every path encodes the same bytes; finite values stay finite, others are detected.
void there_and_back(codec_id codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(encoded_size(codec, values.size()));
  auto portable = bytes;
  encode(codec, values, bytes);
  encode(codec, values, portable, instructions::portable);
  must(bytes == portable);
  std::vector<float> back(values.size());
  must(decode(codec, bytes, back).ok());
  bool poisoned = false;
  for (auto x : values)
    poisoned = poisoned || !std::isfinite(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    must(std::isfinite(values[i]) || !std::isfinite(back[i]));
    must(poisoned || std::isfinite(back[i]));
  }
}

} // namespace

// The first byte selects the codec and the direction; the rest is a part, floats, or a choice of
// codecs as text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  auto codec = static_cast<codec_id>(data[0] % (codec_table.size() + 1)); // one of them invalid
  auto rest = std::as_bytes(std::span{data + 1, size - 1});
  if ((data[0] & 0x80U) != 0) {
    if (auto choice = parse_codec_choice(as_string_view(rest)))
      must(*parse_codec_choice(to_string(*choice)) == *choice);
    return 0;
  }
  if ((data[0] & 0x40U) != 0 && is_known(codec)) {
    std::vector<float> values(rest.size() / 4);
    if (!values.empty())
      std::memcpy(values.data(), rest.data(), 4 * values.size());
    there_and_back(codec, values);
    return 0;
  }
  auto n = rest.size();
  // Blocks of 4096 values cost 4100 bytes.
  for (auto elements :
       {n / 4, n / 2, n / 2 - std::min<std::size_t>(n / 2, 4), n - std::min<std::size_t>(n, 1'024),
        n - std::min<std::size_t>(n, 4 * (n / 4'100 + (n % 4'100 == 0 ? 0 : 1))), n, 4 * n + 1,
        // Blocks of 256 values cost 132 bytes, chunks of 4096 at least 120.
        n / 132 * 256, n / 132 * 256 + 2 * (n % 132) - std::min<std::size_t>(2 * (n % 132), 8),
        n / 120 * 4'096, n / 120 * 4'096 + 40 * (n % 120)})
    decode_as(codec, rest, elements);
  return 0;
}
