#include "runtime/data/tokens.hpp"

#include <algorithm>

#include "runtime/core/try.hpp"
#include "runtime/data/guarded_files.hpp"
#include "runtime/data/sentence.hpp"

namespace waggle {

namespace {

constexpr std::uint64_t looked_at = 1U << 16U; // tokens of each file

sample_shape shape_of(const data_request& request) {
  return {.what = sample_shape::kind::tokens,
          .item_bytes = request.token_bytes,
          .classes = static_cast<std::int64_t>(request.classes)};
}

class token_files final : public items_in_files {
public:
  token_files(const data_files& files, const data_request& request)
    : items_in_files(option_of(request.role), files.files, shape_of(request)) {}
  status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const override {
    WAGGLE_TRY(good, items_in_files::read(piece, at, out));
    auto bytes = shape().item_bytes;
    values_.resize(out.size() / bytes);
    if (auto wrong = read_tokens(out, bytes, shape().classes, values_.data()))
      return failure{ec::io_error,
                     sentence(files().path(piece).string(), " has the token ", *wrong,
                              ", and tokens of ", shape().classes,
                              " classes are below that: set --classes to the size of the "
                              "vocabulary, or --token-type to the type of the file")};
    return done{};
  }

private:
  mutable std::vector<std::int64_t> values_;
};

} // namespace

std::optional<std::uint32_t> read_tokens(byte_span in, std::size_t bytes, std::int64_t classes,
                                         std::int64_t* out) {
  for (std::size_t at = 0; at < in.size(); at += bytes) {
    std::uint32_t token = 0;
    for (std::size_t i = bytes; i-- > 0;)
      token = (token << 8U) | std::to_integer<std::uint32_t>(in[at + i]);
    if (token >= classes)
      return token;
    *out++ = token;
  }
  return std::nullopt;
}

result<std::shared_ptr<const sample_data>> open_tokens(const data_files& files,
                                                       const data_request& request) {
  auto option = option_of(request.role);
  for (const auto& file : files.files)
    if (file.bytes % request.token_bytes != 0)
      return failure{ec::bad_config,
                     sentence(option, " ", file.path.string(), " has ", file.bytes,
                              " bytes, and a token of uint", 8 * request.token_bytes, " has ",
                              request.token_bytes, ": set --token-type, or copy the file again")};
  auto tokens = std::make_shared<token_files>(files, request);
  WAGGLE_TRY(opened, tokens->files().open_all());
  std::vector<std::byte> begin;
  for (std::size_t i = 0; i < files.files.size(); ++i) {
    begin.resize(std::min(looked_at, tokens->sizes()[i]) * request.token_bytes);
    if (auto good = tokens->read(i, 0, begin); !good)
      return failure{ec::bad_config, option + " " + good.error().detail};
  }
  return std::shared_ptr<const sample_data>{tokens};
}

} // namespace waggle
