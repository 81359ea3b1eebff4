#include "runtime/data/data_set.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <zlib.h>

#include "runtime/data/idx.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

std::string big_endian(std::uint32_t n) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8)
    out += static_cast<char>(n >> static_cast<unsigned>(shift));
  return out;
}

/// `n` images of 2 × 3 values; image i is labelled i mod 10, and its values are 10·i, 10·i + 1, …
std::string images_of(std::uint32_t n) {
  auto out = big_endian(0x0803) + big_endian(n) + big_endian(2) + big_endian(3);
  for (std::uint32_t i = 0; i < n; ++i)
    for (std::uint32_t v = 0; v < 6; ++v)
      out += static_cast<char>(10 * i + v);
  return out;
}

std::string labels_of(std::uint32_t n) {
  auto out = big_endian(0x0801) + big_endian(n);
  for (std::uint32_t i = 0; i < n; ++i)
    out += static_cast<char>(i % 10);
  return out;
}

class DataSet : public ::testing::Test {
protected:
  void write(const std::string& name, const std::string& content) const {
    std::ofstream{folder / name, std::ios::binary} << content;
  }
  void write_packed(const std::string& name, const std::string& content) const {
    auto* out = ::gzopen((folder / name).c_str(), "wb");
    EXPECT_EQ(::gzwrite(out, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    ::gzclose(out);
  }
  void write_idx(const std::string& half = "train", std::uint32_t n = 20) const {
    write(half + "-images-idx3-ubyte", images_of(n));
    write(half + "-labels-idx1-ubyte", labels_of(n));
  }
  [[nodiscard]] data_request request(const std::string& name = {}) const {
    return data_request{.path = (name.empty() ? folder : folder / name).string(), .context = 3};
  }
  /// The sentence with which the set is refused.
  [[nodiscard]] std::string refusal(const data_request& r) const {
    auto opened = open_data_set(r);
    EXPECT_FALSE(opened);
    if (opened)
      return {};
    EXPECT_EQ(opened.error().code, ec::bad_config);
    return opened.error().detail;
  }
  [[nodiscard]] std::string refusal() const { return refusal(request()); }
  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

std::vector<int> item_of(const sample_data& data, std::size_t piece, std::uint64_t at) {
  std::vector<std::byte> bytes(data.shape().item_bytes);
  auto read = data.read(piece, at, bytes);
  EXPECT_TRUE(read) << read.error().detail;
  std::vector<int> out;
  for (auto b : bytes)
    out.push_back(std::to_integer<int>(b));
  return out;
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// -- images ---------------------------------------------------------------------------------------

TEST_F(DataSet, ImagesHaveTheirLabelsPackedOrNotAndTheHalvesAreSeparate) {
  write_idx();
  write_packed("t10k-images-idx3-ubyte.gz", images_of(7));
  write_packed("t10k-labels-idx1-ubyte.gz", labels_of(7));
  auto trained = open_data_set(request());
  auto r = request();
  r.role = data_role::evaluation;
  auto tested = open_data_set(r);
  EXPECT_EQ((*trained)->sizes(), std::vector<std::uint64_t>{20});
  EXPECT_EQ((*tested)->sizes(), std::vector<std::uint64_t>{7});
  EXPECT_EQ((*trained)->shape(), (*tested)->shape());
  EXPECT_EQ((*trained)->shape().rows, 2);
  EXPECT_EQ((*trained)->shape().columns, 3);
  EXPECT_EQ((*trained)->shape().classes, 10);
  for (const auto& data : {*trained, *tested})
    EXPECT_EQ(item_of(*data, 0, 5), (std::vector<int>{5, 50, 51, 52, 53, 54, 55}));
}

TEST_F(DataSet, ImagesThatAreCutOffOrTooLongAreRefused) {
  write_idx();
  auto all = images_of(20);
  write("train-images-idx3-ubyte", all.substr(0, all.size() - 1));
  EXPECT_SAYS(refusal(), "train-images-idx3-ubyte has 135 bytes, and 136 by its header");
  write("train-images-idx3-ubyte", all + "x");
  EXPECT_SAYS(refusal(), "train-images-idx3-ubyte has 137 bytes, and 136 by its header");
  write("train-images-idx3-ubyte", all.substr(0, 10));
  EXPECT_SAYS(refusal(), "ends within its header, after 10 bytes of 16");
  write("train-images-idx3-ubyte", "");
  EXPECT_SAYS(refusal(), "ends within its header, after 0 bytes of 16");
}

TEST_F(DataSet, PackedImagesThatAreCutOffOrDamagedAreRefused) {
  write("train-labels-idx1-ubyte", labels_of(20));
  const auto* name = "train-images-idx3-ubyte.gz";
  write_packed(name, images_of(20).substr(0, 100));
  EXPECT_SAYS(refusal(), "has 100 bytes, and 136 by its header");
  write_packed(name, images_of(20) + "more");
  EXPECT_SAYS(refusal(), "has more than the 136 bytes");
  write_packed(name, images_of(20));
  fs::resize_file(folder / name, fs::file_size(folder / name) - 12);
  EXPECT_SAYS(refusal(), "is cut off: copy it again");
  write_packed(name, images_of(20));
  {
    std::fstream file{folder / name, std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(-6, std::ios::end); // in the check sum
    file.put('x');
  }
  EXPECT_SAYS(refusal(), "cannot be unpacked");
}

TEST_F(DataSet, WrongMagicSizesAndCountsAreRefused) {
  write_idx();
  write("train-images-idx3-ubyte", labels_of(20));
  EXPECT_SAYS(refusal(), "begins with 00000801: a file of images in IDX format begins with "
                         "00000803");
  write("train-images-idx3-ubyte", images_of(19));
  EXPECT_SAYS(refusal(), "has 19 images, and train-labels-idx1-ubyte has 20 labels");
  write("train-images-idx3-ubyte",
        big_endian(0x0803) + big_endian(20) + big_endian(0) + big_endian(3));
  EXPECT_SAYS(refusal(), "has images of 0 × 3 values by its header");
  // No memory is taken for what a header claims.
  write_packed("train-images-idx3-ubyte.gz",
               big_endian(0x0803) + big_endian(1U << 28U) + big_endian(4096) + big_endian(4096));
  fs::remove(folder / "train-images-idx3-ubyte");
  EXPECT_SAYS(refusal(), "is larger than 4 GiB");
}

TEST_F(DataSet, ALabelOutsideTheClassesIsRefused) {
  write_idx();
  auto labels = labels_of(20);
  labels[8 + 13] = 10;
  write("train-labels-idx1-ubyte", labels);
  EXPECT_SAYS(refusal(), "train-labels-idx1-ubyte has the label 10 at item 13, and labels of 10 "
                         "classes are below 10");
  auto r = request();
  r.classes = 11;
  EXPECT_TRUE(open_data_set(r));
}

TEST_F(DataSet, AMissingHalfIsNamed) {
  write("train-images-idx3-ubyte", images_of(20));
  EXPECT_SAYS(refusal(), "without train-labels-idx1-ubyte or the same with .gz: add it");
  auto r = request();
  r.role = data_role::evaluation;
  EXPECT_SAYS(refusal(r), "--eval-data");
}

// A mapped file would end the process with SIGBUS.
TEST_F(DataSet, ImagesThatBecomeShorterWhileTheyAreUsedAreAnError) {
  write_idx();
  auto data = open_data_set(request());
  fs::resize_file(folder / "train-images-idx3-ubyte", 50);
  std::vector<std::byte> item((*data)->shape().item_bytes);
  auto read = (*data)->read(0, 19, item);
  EXPECT_EQ(read.error().code, ec::io_error);
  EXPECT_SAYS(read.error().detail, "has become shorter");
}

TEST_F(DataSet, CifarIsReadByRecordAndItsDamageIsNamed) {
  auto record = [](int label) {
    return std::string(1, static_cast<char>(label)) + std::string(cifar_record - 1, 'v');
  };
  for (int i = 1; i <= 5; ++i)
    write("data_batch_" + std::to_string(i) + ".bin", record(i) + record(9));
  auto data = open_data_set(request());
  EXPECT_EQ((*data)->sizes(), std::vector<std::uint64_t>(5, 2));
  EXPECT_EQ((*data)->shape().channels, 3);
  EXPECT_EQ(item_of(**data, 3, 0)[0], 4);
  EXPECT_EQ(item_of(**data, 3, 0)[3072], 'v');
  write("data_batch_4.bin", record(4) + record(10));
  EXPECT_SAYS(refusal(), "data_batch_4.bin has the label 10 at item 1");
  write("data_batch_4.bin", record(4) + "x");
  EXPECT_SAYS(refusal(), "data_batch_4.bin has 3074 bytes");
  fs::remove(folder / "data_batch_4.bin");
  EXPECT_SAYS(refusal(), "without data_batch_4.bin");
  auto r = request();
  r.role = data_role::evaluation;
  EXPECT_SAYS(refusal(r), "without test_batch.bin");
}

// -- tokens ---------------------------------------------------------------------------------------

std::string little_endian(std::uint32_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i));
  return out;
}

TEST_F(DataSet, TokensAreReadInBothTypes) {
  for (std::size_t bytes : {std::size_t{2}, std::size_t{4}}) {
    std::string content;
    for (std::uint32_t i = 0; i < 10; ++i)
      content += little_endian(1000 + i, bytes);
    write("t.bin", content);
    auto r = request("t.bin");
    r.classes = 1010;
    r.token_bytes = bytes;
    auto data = open_data_set(r);
    EXPECT_EQ((*data)->sizes(), std::vector<std::uint64_t>{10});
    EXPECT_EQ(item_of(**data, 0, 7)[0], 1007 % 256);
    EXPECT_EQ(item_of(**data, 0, 7)[1], 1007 / 256);
    r.classes = 1009;
    EXPECT_SAYS(refusal(r), "has the token 1009, and tokens of 1009 classes are below that");
  }
}

TEST_F(DataSet, TokensNeedAWholeNumberOfBytesAndTheirVocabulary) {
  write("t.bin", std::string(21, '\0'));
  auto r = request("t.bin");
  EXPECT_SAYS(refusal(r), "--classes N says how many there are");
  r.classes = 300;
  EXPECT_SAYS(refusal(r), "has 21 bytes, and a token of uint16 has 2: set --token-type");
  write("t.bin", std::string(22, '\0'));
  r.token_bytes = 4;
  EXPECT_SAYS(refusal(r), "has 22 bytes, and a token of uint32 has 4");
}

TEST_F(DataSet, TextHasTheClassesOfBytes) {
  write("a.txt", "some text");
  auto r = request();
  ASSERT_TRUE(open_data_set(r));
  r.classes = 10;
  EXPECT_SAYS(refusal(r), "is text, whose bytes are 256 classes");
}

TEST_F(DataSet, TextThatIsPackedIsSaid) {
  write("a.txt", "some text");
  EXPECT_EQ(packed_text(request()), std::nullopt);
  write_packed("b.txt.gz", "some text");
  write("c", std::string{"\xfd"} + "7zXZ and so on");
  auto said = packed_text(request()).value_or("");
  EXPECT_SAYS(said, "2 of 3 files are packed, the first " + (folder / "b.txt.gz").string()
                      + ": their packed bytes are trained on");
  EXPECT_SAYS(packed_text(request("c")).value_or(""), "1 of 1 files are packed");
  write_idx();
  write_packed("train-labels-idx1-ubyte.gz", labels_of(20));
  EXPECT_EQ(packed_text(request()), std::nullopt) << "images may be packed";
}

TEST_F(DataSet, PeersCompareNamesSizesAndTheTypeOfAnItem) {
  write_idx();
  auto images = data_set_identity(request());
  EXPECT_SAYS(images, "2 files of 164 bytes");
  EXPECT_SAYS(images, "images of uint8");
  write_idx("train", 21);
  EXPECT_NE(data_set_identity(request()), images);
  write("t.bin", std::string(20, '\0'));
  auto r = request("t.bin");
  EXPECT_EQ(data_set_identity(r), "t.bin of 20 bytes, uint16");
  r.token_bytes = 4;
  EXPECT_EQ(data_set_identity(r), "t.bin of 20 bytes, uint32");
  EXPECT_EQ(data_set_identity(request("nothing")), "");
}

// -- in order -------------------------------------------------------------------------------------

TEST_F(DataSet, AGridHasEachImageOnceAndTextWithOneByteOfOverlap) {
  write_idx();
  auto images = open_data_set(request());
  window_grid grid{**images, 1};
  ASSERT_EQ(grid.count(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i) {
    auto item = (*images)->windows(1, std::vector{grid.at(i)});
    EXPECT_EQ(std::to_integer<std::uint64_t>((*item)[1]), (10 * i) % 256);
  }
  fs::create_directory(folder / "text");
  write("text/a", "abcdefgh");
  write("text/b", "1234");
  auto text = open_data_set(request("text"));
  window_grid words{**text, 4};
  std::vector<window_place> places;
  while (places.size() < words.count())
    places.push_back(words.at(places.size()));
  auto all = (*text)->windows(4, places);
  EXPECT_EQ(as_string_view(*all), "abcddefg1234");
}

} // namespace

} // namespace waggle
