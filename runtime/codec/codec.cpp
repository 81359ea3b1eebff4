#include "runtime/codec/codec.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/codec/part_reader.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

const codec_row& row_with(codec_id codec) {
  WAGGLE_CHECK(is_known(codec), std::to_string(static_cast<unsigned>(codec)));
  return *codec_table[static_cast<std::size_t>(codec)];
}

constexpr codec_row as_it_is(codec_id id, std::string_view name, std::string_view note,
                             codec_result result) {
  return {id,
          name,
          note,
          32,
          [](std::size_t n) { return 4 * n; },
          [](instructions, const float* values, std::size_t n, std::byte* bytes) {
            std::memcpy(bytes, values, 4 * n);
          },
          nullptr,
          [](instructions, const std::byte* bytes, std::size_t, std::size_t begin,
             std::size_t count,
             float* values) { std::memcpy(values, bytes + 4 * begin, 4 * count); },
          result};
}

} // namespace

constexpr codec_row codecs::none =
  as_it_is(codec_id::none, "none", "float32", codec_result::aggregate);
constexpr codec_row codecs::median64 =
  as_it_is(codec_id::median64, "median64", {}, codec_result::median);
constexpr codec_row codecs::largest64 =
  as_it_is(codec_id::largest64, "largest64", {}, codec_result::largest);
constexpr codec_row codecs::mean64 = as_it_is(codec_id::mean64, "mean64", {}, codec_result::mean);

std::string_view to_string(codec_id codec) {
  return is_known(codec) ? row_with(codec).name : "unknown";
}

std::string codec_names() {
  return listed(offered_codec_table, ", ");
}

result<codec_id> parse_codec(std::string_view name) {
  if (const auto* row = find_named(offered_codec_table, name))
    return row->id;
  return failure{ec::bad_config,
                 "'" + std::string{name} + "' is not a codec; there are: " + codec_names()};
}

bool is_known(codec_id codec) {
  return static_cast<std::size_t>(codec) < codec_table.size();
}

codec_result result_of(codec_id codec) {
  return row_with(codec).result;
}

bool sends_contributions_back(codec_id codec) {
  return row_with(codec).sent_back == result_form::contributions;
}

double bits_per_value(codec_id codec) {
  return row_with(codec).bits_per_value;
}

codec_id written_as(codec_id codec, std::size_t elements) {
  return row_with(codec).size(elements) < 4 * elements ? codec : codec_id::none;
}

std::size_t encoded_size(codec_id codec, std::size_t elements) {
  return std::min(row_with(codec).size(elements), 4 * elements);
}

void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out,
            instructions path) {
  WAGGLE_CHECK(out.size() == encoded_size(codec, values.size()), std::to_string(out.size()));
  if (!values.empty())
    row_with(written_as(codec, values.size()))
      .encode(path, values.data(), values.size(), out.data());
}

status decode(codec_id codec, byte_span bytes, std::span<float> out, instructions path) {
  WAGGLE_TRY(reader, part_reader::open(codec, bytes, out.size(), path));
  reader->read(0, out);
  return done{};
}

} // namespace waggle
