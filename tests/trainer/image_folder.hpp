#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <unistd.h>

namespace waggle {

/// A set of images (IDX) in a folder that disappears: 8 × 8 values of noise, and a bright column
/// at the place of the label. Column 8 and 9 are rows 0 and 1.
class image_folder {
public:
  explicit image_folder(std::uint32_t trained = 200, std::uint32_t tested = 100) {
    auto name = (std::filesystem::temp_directory_path() / "waggle-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
    write("train", trained, 1);
    write("t10k", tested, 2);
  }
  ~image_folder() { std::filesystem::remove_all(path); }
  image_folder(const image_folder&) = delete;
  image_folder& operator=(const image_folder&) = delete;

  std::filesystem::path path;

private:
  void write(const std::string& half, std::uint32_t n, unsigned seed) const {
    std::mt19937 random{seed};
    auto number = [](std::uint32_t x) {
      std::string out;
      for (int shift = 24; shift >= 0; shift -= 8)
        out += static_cast<char>(x >> static_cast<unsigned>(shift));
      return out;
    };
    auto images = number(0x0803) + number(n) + number(8) + number(8);
    auto labels = number(0x0801) + number(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      auto label = static_cast<std::uint32_t>(random() % 10);
      labels += static_cast<char>(label);
      for (std::uint32_t y = 0; y < 8; ++y)
        for (std::uint32_t x = 0; x < 8; ++x) {
          bool bright = label < 8 ? x == label : y == label - 8;
          images += static_cast<char>(random() % 60 + (bright ? 180 : 0));
        }
    }
    std::ofstream{path / (half + "-images-idx3-ubyte"), std::ios::binary} << images;
    std::ofstream{path / (half + "-labels-idx1-ubyte"), std::ios::binary} << labels;
  }
};

} // namespace waggle
