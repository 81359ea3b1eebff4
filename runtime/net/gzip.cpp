#include "runtime/net/gzip.hpp"

#include <algorithm>
#include <array>
#include <new>

#include <zlib.h>

namespace waggle::net {

namespace {

constexpr int raw_window = -15;
constexpr int gzip_window = 15 + 16;
constexpr std::size_t packet_bytes = 1'400;
constexpr std::size_t piece_bytes_min = 16'384;

/// Empty: there is no memory for it.
std::string packed(std::string_view bytes, int level, int window, int flush) {
  constexpr int memory_level = 8; // zlib's default
  constexpr std::size_t flush_bytes = 16;
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, window, memory_level, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  std::string out(deflateBound(&stream, bytes.size()) + flush_bytes, '\0');
  // zlib does not write there
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  bool whole = deflate(&stream, flush) == (flush == Z_FINISH ? Z_STREAM_END : Z_OK);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return whole ? out : std::string{};
}

bool has_coding(const http_response& reply) {
  return std::any_of(reply.headers.begin(), reply.headers.end(),
                     [](const auto& header) { return header.first == "Content-Encoding"; });
}

} // namespace

void compress(http_response& reply) {
  if (reply.stream || reply.body.size() <= packet_bytes || has_coding(reply))
    return;
  auto out = packed(reply.body, Z_BEST_SPEED, gzip_window, Z_FINISH);
  if (out.empty())
    return;
  reply.body = std::move(out);
  reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.headers.emplace_back("Vary", "Accept-Encoding");
}

std::string gzip_begin() {
  return {"\x1f\x8b\x08\0\0\0\0\0\0\xff", 10}; // RFC 1952: deflate, no time, no name, any system
}

// The blocks of a piece refer to no bytes before it and end at a byte (RFC 1951), so a stream may
// consist of pieces of several deflates.
std::string gzip_piece(std::string_view bytes) {
  auto level = bytes.size() >= piece_bytes_min ? Z_DEFAULT_COMPRESSION : Z_NO_COMPRESSION;
  auto out = packed(bytes, level, raw_window, Z_SYNC_FLUSH);
  if (out.empty() && !bytes.empty())
    throw std::bad_alloc{};
  return out;
}

std::string gunzip(std::span<const unsigned char> bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window) != Z_OK)
    return {};
  stream.next_in = const_cast<unsigned char*>(bytes.data()); // zlib does not write there
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::array<char, 16'384> chunk{};
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<unsigned char*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return out;
}

} // namespace waggle::net
