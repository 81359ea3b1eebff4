// The one file that compiles Asio's and Beast's own code; the others only declare it.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
