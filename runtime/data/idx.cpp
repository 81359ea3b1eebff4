#include "runtime/data/idx.hpp"

#include "runtime/core/try.hpp"
#include "runtime/data/sentence.hpp"

namespace waggle {

namespace {

constexpr unsigned unsigned_bytes = 8;

failure bad(std::string why) {
  return {ec::malformed, std::move(why)};
}

std::uint32_t number_at(byte_span in, std::size_t at) {
  std::uint32_t n = 0;
  for (std::size_t i = 0; i < 4; ++i)
    n = (n << 8U) | std::to_integer<std::uint32_t>(in[at + i]);
  return n;
}

/// Checks the first four bytes, and that there are the sizes of all dimensions.
status check_begin(byte_span in, unsigned dimensions, std::string_view what) {
  auto bytes = 4 + std::size_t{4} * dimensions;
  if (in.size() < bytes)
    return bad(sentence("ends within its header, after ", in.size(), " bytes of ", bytes,
                        ": copy it again"));
  if (number_at(in, 0) != (unsigned_bytes << 8U | dimensions))
    return bad(sentence("begins with ", to_hex(in.first(4)), ": a file of ", what,
                        " in IDX format begins with 0000080", dimensions));
  auto items = number_at(in, 4);
  if (items == 0 || items > images_max)
    return bad(
      sentence("has ", items, " items by its header: between 1 and ", images_max, " are read"));
  return done{};
}

} // namespace

result<idx_header> parse_idx_labels(byte_span begin) {
  WAGGLE_TRY(good, check_begin(begin, 1, "labels"));
  return idx_header{number_at(begin, 4), 1, 1};
}

result<idx_header> parse_idx_images(byte_span begin) {
  WAGGLE_TRY(good, check_begin(begin, 3, "images"));
  idx_header head{number_at(begin, 4), number_at(begin, 8), number_at(begin, 12)};
  auto in_bounds = [](std::uint32_t side) { return side >= 1 && side <= image_side_max; };
  if (!in_bounds(head.rows) || !in_bounds(head.columns))
    return bad(sentence("has images of ", head.rows, " × ", head.columns,
                        " values by its header: between 1 and ", image_side_max,
                        " rows and columns are read"));
  return head;
}

status check_labels(byte_span labels, std::size_t stride, std::int64_t classes,
                    std::uint64_t first) {
  for (std::size_t at = 0; at < labels.size(); at += stride)
    if (auto label = std::to_integer<std::int64_t>(labels[at]); label >= classes)
      return bad(sentence("has the label ", label, " at item ", first + at / stride,
                          ", and labels of ", classes, " classes are below ", classes,
                          ": set --classes, or copy it again"));
  return done{};
}

} // namespace waggle
