#include "runtime/codec/sparse2.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/codec/blocks.hpp"

namespace waggle::codecs {

namespace {

constexpr std::uint8_t negative = 1;
constexpr std::uint8_t high = 2;

constexpr std::size_t values_in(std::size_t n, std::size_t chunk) {
  return std::min(sparse_chunk, n - chunk * sparse_chunk);
}
constexpr std::size_t sparse2_size(std::size_t n) {
  auto rest = n % sparse_chunk;
  return n / sparse_chunk * sparse_chunk_bytes(sparse_chunk)
         + (rest == 0 ? 0 : sparse_chunk_bytes(rest));
}
std::byte* chunk_at(std::byte* bytes, std::size_t chunk) {
  return bytes + chunk * sparse_chunk_bytes(sparse_chunk);
}
const std::byte* chunk_at(const std::byte* bytes, std::size_t chunk) {
  return bytes + chunk * sparse_chunk_bytes(sparse_chunk);
}

std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
}

// -- choosing the largest -------------------------------------------------------------------------

/// A magnitude and its place as one number: the larger magnitude, then the lower place is larger.
constexpr std::uint64_t key_of(std::uint32_t magnitude, std::size_t place) {
  return (std::uint64_t{magnitude} << 12U) | (sparse_chunk - 1 - place);
}
constexpr std::size_t place_of(std::uint64_t key) {
  return sparse_chunk - 1 - (key & (sparse_chunk - 1));
}

using keys = std::vector<std::uint64_t>;

/// The `k` largest keys, in no order. Magnitudes are counted by exponent and two bits more, so that
/// only the few of the last of these classes have to be compared.
void choose_largest(const float* values, std::size_t n, std::size_t k, keys& chosen) {
  constexpr unsigned shift = 21;
  std::array<std::uint16_t, 1U << (31 - shift)> counts{};
  for (std::size_t i = 0; i < n; ++i)
    ++counts[magnitude_bits(values[i]) >> shift];
  std::size_t last = counts.size();
  for (std::size_t found = 0; found < k;)
    found += counts[--last];
  auto least = static_cast<std::uint32_t>(last << shift);
  chosen.clear();
  for (std::size_t i = 0; i < n; ++i)
    if (auto magnitude = magnitude_bits(values[i]); magnitude >= least)
      chosen.push_back(key_of(magnitude, i));
  if (chosen.size() > k)
    std::nth_element(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(k), chosen.end(),
                     std::greater<>{});
  chosen.resize(k);
}

// -- two magnitudes for many ----------------------------------------------------------------------

struct levels {
  float low = 0;
  float high = 0;
};

/// The least squared error: Σ x² − L²/j − H²/(k − j), where L is the sum of the j smallest and H
/// that of the others. REQUIRES: ascending, finite, not empty.
levels fit(const std::vector<float>& magnitudes) {
  auto k = magnitudes.size();
  double all = 0;
  for (auto x : magnitudes)
    all += static_cast<double>(x);
  double best = -1;
  double smaller = 0;
  levels out;
  for (std::size_t j = 1; j <= k; ++j) {
    smaller += static_cast<double>(magnitudes[j - 1]);
    auto larger = all - smaller;
    auto few = static_cast<double>(j);
    auto rest = static_cast<double>(k - j);
    auto explained = smaller * smaller / few + (j < k ? larger * larger / rest : 0);
    if (explained <= best)
      continue;
    best = explained;
    out.low = static_cast<float>(smaller / few);
    out.high = j < k ? std::max(out.low, static_cast<float>(larger / rest)) : out.low;
  }
  return out;
}

// -- bits -----------------------------------------------------------------------------------------

/// Two places in three bytes.
void write_place(std::byte* places, std::size_t i, std::size_t place) {
  auto* at = places + i / 2 * 3;
  if (i % 2 == 0) {
    at[0] = static_cast<std::byte>(place);
    at[1] = static_cast<std::byte>(place >> 8U);
  } else {
    at[1] |= static_cast<std::byte>(place << 4U);
    at[2] = static_cast<std::byte>(place >> 4U);
  }
}

std::uint32_t number(std::byte b) {
  return static_cast<std::uint32_t>(b);
}

std::uint16_t read_place(const std::byte* places, std::size_t i) {
  const auto* at = places + i / 2 * 3;
  return static_cast<std::uint16_t>(i % 2 == 0 ? number(at[0]) | (number(at[1]) & 15U) << 8U
                                               : number(at[1]) >> 4U | number(at[2]) << 4U);
}

std::uint32_t read_code(const std::byte* codes, std::size_t i) {
  return number(codes[i / 4]) >> (2 * (i % 4)) & 3U;
}

/// The parts of an encoded chunk of n values.
template <class Byte>
struct fields {
  fields(Byte* bytes, std::size_t n)
    : scales(bytes), places(bytes + 8), codes(places + (12 * kept_of(n) + 7) / 8),
      end(bytes + sparse_chunk_bytes(n)) {}
  Byte* scales;
  Byte* places;
  Byte* codes;
  Byte* end;
};

// -- the row --------------------------------------------------------------------------------------

void encode_chunk(const float* values, std::size_t n, std::byte* bytes, keys& chosen,
                  std::vector<float>& magnitudes) {
  auto k = kept_of(n);
  fields at{bytes, n};
  std::memset(bytes, 0, sparse_chunk_bytes(n));
  choose_largest(values, n, k, chosen);
  magnitudes.clear();
  for (auto key : chosen)
    magnitudes.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(key >> 12U)));
  std::ranges::sort(chosen, {}, place_of);
  auto is_finite = [](float x) { return std::bit_cast<std::uint32_t>(x) < infinity_bits; };
  if (!std::ranges::all_of(magnitudes, is_finite)) {
    std::memcpy(at.scales, &nan_bits, 4);
    std::memcpy(at.scales + 4, &nan_bits, 4);
    return;
  }
  std::ranges::sort(magnitudes);
  auto level = fit(magnitudes);
  std::memcpy(at.scales, &level.low, 4);
  std::memcpy(at.scales + 4, &level.high, 4);
  for (std::size_t i = 0; i < k; ++i) {
    auto place = place_of(chosen[i]);
    auto x = values[place];
    auto magnitude = static_cast<double>(x < 0 ? -x : x);
    bool nearer =
      static_cast<double>(level.high) - magnitude < magnitude - static_cast<double>(level.low);
    auto code = (x < 0 ? negative : 0U) | (nearer ? high : 0U);
    write_place(at.places, i, place);
    at.codes[i / 4] |= static_cast<std::byte>(code << (2 * (i % 4)));
  }
}

void to_sparse2(instructions /*path*/, const float* values, std::size_t n, std::byte* bytes) {
  keys chosen;
  std::vector<float> magnitudes;
  chosen.reserve(sparse_chunk);
  for (std::size_t chunk = 0; chunk < blocks_of<sparse_chunk>(n); ++chunk)
    encode_chunk(values + chunk * sparse_chunk, values_in(n, chunk), chunk_at(bytes, chunk), chosen,
                 magnitudes);
}

std::uint32_t scale_bits(const std::byte* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, 4);
  return bits;
}

/// Why no encoder writes these bytes; null: one may.
const char* fault_of(const std::byte* bytes, std::size_t n) {
  auto k = kept_of(n);
  fields at{bytes, n};
  auto low = scale_bits(at.scales);
  auto top = scale_bits(at.scales + 4);
  if (low == nan_bits && top == nan_bits)
    return std::any_of(at.places, at.end, [](std::byte b) { return b != std::byte{0}; })
             ? "has places beside NaN"
             : nullptr;
  if (low >= infinity_bits || top >= infinity_bits || low > top) // negative ones are larger still
    return "has magnitudes that are negative, not finite or not in order";
  for (std::size_t i = 0; i < k; ++i) {
    auto place = read_place(at.places, i);
    if (place >= n)
      return "has a place outside of it";
    if (i > 0 && place <= read_place(at.places, i - 1))
      return "has places twice or not in order";
  }
  bool padded = (k % 2 == 0 || number(at.codes[-1]) < 16)
                && (k % 4 == 0 || number(at.end[-1]) >> (2 * (k % 4)) == 0);
  return padded ? nullptr : "does not end with zero bits";
}

status check_chunks(const std::byte* bytes, std::size_t n) {
  for (std::size_t chunk = 0; chunk < blocks_of<sparse_chunk>(n); ++chunk)
    if (const auto* fault = fault_of(chunk_at(bytes, chunk), values_in(n, chunk)))
      return failure{ec::malformed, "chunk " + std::to_string(chunk) + " " + fault};
  return done{};
}

std::size_t kept_values(const std::byte* bytes, std::size_t n, std::size_t chunk,
                        std::uint16_t* places, float* values) {
  auto count = values_in(n, chunk);
  fields at{chunk_at(bytes, chunk), count};
  std::array<float, 4> decoded{};
  std::memcpy(&decoded[0], at.scales, 4);
  std::memcpy(&decoded[high], at.scales + 4, 4);
  if (decoded[0] != decoded[0]) {
    for (std::size_t i = 0; i < count; ++i) {
      places[i] = static_cast<std::uint16_t>(i);
      values[i] = decoded[0];
    }
    return count;
  }
  decoded[negative] = -decoded[0];
  decoded[negative | high] = -decoded[high];
  for (std::size_t i = 0; i < kept_of(count); ++i) {
    places[i] = read_place(at.places, i);
    values[i] = decoded[read_code(at.codes, i)];
  }
  return kept_of(count);
}

void read_values(instructions /*path*/, const std::byte* bytes, std::size_t n, std::size_t begin,
                 std::size_t count, float* values) {
  std::array<std::uint16_t, sparse_chunk> places;
  std::array<float, sparse_chunk> kept;
  std::fill(values, values + count, 0.0F);
  auto end = begin + count;
  for (auto chunk = begin / sparse_chunk; chunk * sparse_chunk < end; ++chunk) {
    auto some = kept_values(bytes, n, chunk, places.data(), kept.data());
    for (std::size_t i = 0; i < some; ++i)
      if (auto at = chunk * sparse_chunk + places[i]; at >= begin && at < end)
        values[at - begin] = kept[i];
  }
}

} // namespace

constexpr codec_row sparse2{codec_id::sparse2,
                            "sparse2",
                            "the largest 64 of 4096 values, in two bits each",
                            15.0 / 64,
                            sparse2_size,
                            to_sparse2,
                            check_chunks,
                            read_values,
                            codec_result::aggregate,
                            result_form::contributions,
                            kept_values};

} // namespace waggle::codecs
