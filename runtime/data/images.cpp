#include "runtime/data/images.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <zlib.h>

#include "runtime/core/try.hpp"
#include "runtime/data/guarded_files.hpp"
#include "runtime/data/idx.hpp"
#include "runtime/data/sentence.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// Packed files are unpacked in memory.
constexpr std::uint64_t unpacked_max = 4_GiB;

failure bad(const std::string& option, const fs::path& file, const std::string& why) {
  return {ec::bad_config, option + " " + file.string() + " " + why};
}

bool packed(const fs::path& file) {
  return file.extension() == ".gz";
}

/// A whole file, packed or not, of which at most `bytes_max` bytes are wanted. Fails with half a
/// sentence.
result<std::vector<std::byte>> unpack(const fs::path& file, std::uint64_t bytes_max) {
  std::unique_ptr<std::remove_pointer_t<gzFile>, int (*)(gzFile)> in{::gzopen(file.c_str(), "rb"),
                                                                     ::gzclose};
  if (!in)
    return failure{ec::io_error, std::string{"cannot be opened: "} + std::strerror(errno)};
  std::vector<std::byte> out;
  for (;;) {
    constexpr std::uint64_t piece = 1_MiB;
    auto have = out.size();
    out.resize(have + std::min<std::uint64_t>(piece, bytes_max + 1 - have));
    auto n = ::gzread(in.get(), out.data() + have, static_cast<unsigned>(out.size() - have));
    int code = Z_OK;
    const char* why = ::gzerror(in.get(), &code);
    if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
      return failure{ec::malformed, code == Z_BUF_ERROR
                                      ? std::string{"is cut off: copy it again"}
                                      : std::string{"cannot be unpacked: "} + why};
    out.resize(have + static_cast<std::size_t>(n));
    if (n == 0 || out.size() > bytes_max)
      return out;
  }
}

std::string wrong_length(std::uint64_t has, std::uint64_t wants) {
  return sentence("has ", has, " bytes, and ", wants, " by its header: copy it again");
}

/// The bytes behind the header of one IDX file. Fails with half a sentence.
struct idx_content {
  idx_header head;
  std::vector<std::byte> values; // without the header
};
result<idx_content> read_idx(const fs::path& file, bool images) {
  auto header_bytes = images ? idx_images_header : idx_labels_header;
  auto parse = images ? parse_idx_images : parse_idx_labels;
  WAGGLE_TRY(begin, unpack(file, header_bytes));
  begin->resize(std::min(begin->size(), header_bytes));
  WAGGLE_TRY(head, parse(*begin));
  if (head->value_bytes() > unpacked_max)
    return failure{ec::oversize, "is larger than 4 GiB: unpack it (gunzip), to be read from disk"};
  auto wants = header_bytes + head->value_bytes();
  WAGGLE_TRY(all, unpack(file, wants));
  if (all->size() > wants) // no more of it was unpacked
    return failure{ec::malformed,
                   sentence("has more than the ", wants, " bytes of its header: copy it again")};
  if (all->size() < wants)
    return failure{ec::malformed, wrong_length(all->size(), wants)};
  all->erase(all->begin(), all->begin() + static_cast<std::ptrdiff_t>(header_bytes));
  return idx_content{*head, std::move(*all)};
}

/// Of images as they are read: the label, and then the values.
sample_shape images_of(std::size_t item_bytes, std::int64_t channels, std::int64_t rows,
                       std::int64_t columns, std::int64_t classes) {
  return {sample_shape::kind::images, item_bytes, channels, rows, columns, classes};
}

class idx_images final : public sample_data {
public:
  idx_images(idx_header head, std::vector<std::byte> labels, std::vector<std::byte> values,
             std::shared_ptr<const guarded_files> file, std::int64_t classes)
    : sample_data(images_of(1 + head.item_bytes(), 1, head.rows, head.columns, classes),
                  {head.items}),
      labels_(std::move(labels)), values_(std::move(values)), file_(std::move(file)),
      image_bytes_(head.item_bytes()) {}
  status read(std::size_t /*piece*/, std::uint64_t at, std::span<std::byte> out) const override {
    for (; !out.empty(); out = out.subspan(shape().item_bytes), ++at) {
      out[0] = labels_[at];
      auto image = out.subspan(1, image_bytes_);
      if (!file_)
        std::memcpy(image.data(), values_.data() + at * image_bytes_, image_bytes_);
      else if (auto good = file_->read(0, idx_images_header + at * image_bytes_, image); !good)
        return good;
    }
    return done{};
  }

private:
  std::vector<std::byte> labels_;
  std::vector<std::byte> values_;             // unpacked; none: they are in the file
  std::shared_ptr<const guarded_files> file_; // null: they are in memory
  std::size_t image_bytes_;
};

class cifar_images final : public items_in_files {
public:
  cifar_images(const data_files& files, const std::string& option, std::int64_t classes)
    : items_in_files(option, files.files,
                     images_of(cifar_record, 3, cifar_side, cifar_side, classes)) {}
  status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const override {
    WAGGLE_TRY(got, items_in_files::read(piece, at, out));
    if (auto good = check_labels(out, cifar_record, shape().classes, at); !good)
      return failure{ec::io_error, files().path(piece).string() + " " + good.error().detail};
    return done{};
  }
};

status add_file(data_files& found, const std::string& option, const fs::path& file) {
  std::error_code error;
  auto bytes = fs::file_size(file, error);
  if (error)
    return bad(option, file, "cannot be read: " + error.message());
  found.files.push_back({file, bytes});
  return done{};
}

} // namespace

result<data_files> idx_files(const fs::path& folder, data_role role) {
  data_files found;
  auto option = option_of(role);
  std::string half = role == data_role::training ? "train" : "t10k";
  for (const auto* rest : {"-images-idx3-ubyte", "-labels-idx1-ubyte"}) {
    std::error_code error;
    auto file = folder / (half + rest);
    if (!fs::exists(file, error) && fs::exists(file.string() + ".gz", error))
      file += ".gz";
    if (!fs::exists(file, error))
      return bad(option, folder,
                 "is a set of images (IDX) without " + file.filename().string()
                   + " or the same with .gz: add it");
    WAGGLE_TRY(added, add_file(found, option, file));
  }
  return found;
}

result<data_files> cifar_files(const fs::path& folder, data_role role) {
  data_files found;
  auto option = option_of(role);
  std::error_code error;
  std::vector<std::string> names{"test_batch.bin"};
  if (role == data_role::training) {
    names.clear();
    for (int i = 1; i <= 5; ++i)
      names.push_back("data_batch_" + std::to_string(i) + ".bin");
  }
  for (const auto& name : names) {
    if (!fs::exists(folder / name, error))
      return bad(option, folder, "is a set of images (CIFAR-10) without " + name + ": add it");
    WAGGLE_TRY(added, add_file(found, option, folder / name));
  }
  return found;
}

result<std::shared_ptr<const sample_data>>
open_idx(const data_files& files, const std::string& option, std::int64_t classes) {
  const auto& images = files.files.at(0);
  const auto& labels = files.files.at(1);
  auto named = read_idx(labels.path, false);
  if (!named)
    return bad(option, labels.path, named.error().detail);
  idx_header head;
  std::vector<std::byte> values;
  std::shared_ptr<guarded_files> on_disk;
  if (packed(images.path)) {
    auto content = read_idx(images.path, true);
    if (!content)
      return bad(option, images.path, content.error().detail);
    head = content->head;
    values = std::move(content->values);
  } else {
    on_disk = std::make_shared<guarded_files>(option, std::vector{images});
    WAGGLE_TRY(opened, on_disk->open_all());
    std::vector<std::byte> begin(std::min<std::uint64_t>(images.bytes, idx_images_header));
    if (auto read = on_disk->read(0, 0, begin); !read)
      return failure{ec::bad_config, read.error().detail};
    auto parsed = parse_idx_images(begin);
    if (!parsed)
      return bad(option, images.path, parsed.error().detail);
    head = *parsed;
    if (auto wants = idx_images_header + head.value_bytes(); images.bytes != wants)
      return bad(option, images.path, wrong_length(images.bytes, wants));
  }
  if (head.items != named->head.items)
    return bad(option, images.path,
               sentence("has ", head.items, " images, and ", labels.path.filename().string(),
                        " has ", named->head.items, " labels: they belong to different sets"));
  if (auto good = check_labels(named->values, 1, classes); !good)
    return bad(option, labels.path, good.error().detail);
  return std::shared_ptr<const sample_data>{std::make_shared<idx_images>(
    head, std::move(named->values), std::move(values), on_disk, classes)};
}

result<std::shared_ptr<const sample_data>>
open_cifar(const data_files& files, const std::string& option, std::int64_t classes) {
  for (const auto& file : files.files)
    if (file.bytes == 0 || file.bytes % cifar_record != 0)
      return bad(option, file.path,
                 sentence("has ", file.bytes,
                          " bytes, which are no whole number of images of CIFAR-10, ", cifar_record,
                          " bytes each: copy it again"));
  auto images = std::make_shared<cifar_images>(files, option, classes);
  WAGGLE_TRY(opened, images->files().open_all());
  std::vector<std::byte> record(cifar_record * 64);
  for (std::size_t i = 0; i < images->sizes().size(); ++i)
    for (std::uint64_t at = 0; at < images->sizes()[i]; at += 64) {
      auto n = std::min<std::uint64_t>(64, images->sizes()[i] - at);
      if (auto good = images->read(i, at, std::span{record}.first(n * cifar_record)); !good)
        return failure{ec::bad_config, option + " " + good.error().detail};
    }
  return std::shared_ptr<const sample_data>{images};
}

} // namespace waggle
