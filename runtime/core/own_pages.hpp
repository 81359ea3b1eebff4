#pragma once

#include <cstddef>
#include <memory>

namespace waggle {

/// `bytes` bytes, all zero, in pages of their own, which return to the system when the last owner
/// releases them, and which do not exist before they are written. malloc gives neither: what was
/// freed in an arena stays resident below whatever was allocated after it, and is handed out again.
/// Costs a page fault every 4 KiB, so this is for memory that is needed rarely or must be bounded.
/// Never huge pages: one written byte would make 2 MiB resident. Throws std::bad_alloc.
std::shared_ptr<std::byte> own_pages(std::size_t bytes);

} // namespace waggle
