// Headers and labels of files of images.

#include <cstddef>
#include <cstdint>

#include "runtime/data/idx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace waggle;
  auto bytes = std::as_bytes(std::span{data, size});
  for (auto parse : {parse_idx_images, parse_idx_labels}) {
    auto head = parse(bytes);
    // What is allocated follows from these numbers.
    if (head
        && (head->items == 0 || head->items > images_max || head->rows > image_side_max
            || head->columns > image_side_max))
      __builtin_trap();
  }
  (void)check_labels(bytes, 1, 10);
  (void)check_labels(bytes, cifar_record, 10);
  return 0;
}
