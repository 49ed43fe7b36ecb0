// The compiled part of fmt for everything that links tnt_fmt (fmt.cmake). Without FMT_HEADER_ONLY this header defines it; the
// explicit instantiations are those that format.h declares and does not define.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
#if FMT_VERSION < 90000
template int format_float(double, int, float_specs, buffer<char>&);
template int format_float(long double, int, float_specs, buffer<char>&);
template int snprintf_float(double, int, float_specs, buffer<char>&);
template int snprintf_float(long double, int, float_specs, buffer<char>&);
#elif FMT_VERSION >= 100000 && FMT_VERSION < 110000
template void vformat_to(buffer<char>&, string_view, vformat_args<char>::type, locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
