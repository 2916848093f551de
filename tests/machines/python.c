/* python.exe for a Python that has only python311.dll: it runs Py_Main of the DLL beside it.
   Under Wine, a standard stream that is a file of the host has no information (GetFileInformationByHandle fails), and
   Python ends with "can't initialize sys standard streams". Such a stream is replaced by a pipe, with a thread that
   copies; a stream that is closed or invalid is replaced by NUL. On Windows nothing of this ever happens. */
#include <windows.h>
#include <wchar.h>
typedef int (*main_t)(int, wchar_t **);
typedef struct { HANDLE from, to; char data[65536]; volatile DWORD left; } copy_t;
static copy_t copies[3];
static void write_all(copy_t *c) {
    DWORD done, at = 0;
    while (at < c->left && WriteFile(c->to, c->data + at, c->left - at, &done, NULL) && done) at += done;
    c->left = 0;
}
static DWORD WINAPI run(void *what) {
    copy_t *c = what; DWORD got;
    while (ReadFile(c->from, c->data, sizeof c->data, &got, NULL) && got) { c->left = got; write_all(c); }
    if (c == &copies[0]) CloseHandle(c->to);
    return 0;
}
/* At the end of the process, however it ends by itself (os._exit): the threads are gone, so copy what is left. */
static void NTAPI at_exit(void *module, DWORD reason, void *reserved) {
    DWORD there; (void)module; (void)reserved;
    if (reason != DLL_PROCESS_DETACH) return;
    for (copy_t *c = copies + 1; c < copies + 3; c++) if (c->from) {
        if (c->left) write_all(c);
        while (PeekNamedPipe(c->from, NULL, 0, NULL, &there, NULL) && there
               && ReadFile(c->from, c->data, sizeof c->data, &there, NULL) && there) { c->left = there; write_all(c); }
    }
}
__attribute__((section(".CRT$XLF"), used)) PIMAGE_TLS_CALLBACK at_exit_entry = at_exit;
static void repair(int number, DWORD name) {
    HANDLE old = GetStdHandle(name), ours, theirs;
    BY_HANDLE_FILE_INFORMATION told; SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    SetLastError(0);
    DWORD type = old && old != INVALID_HANDLE_VALUE ? GetFileType(old) : FILE_TYPE_UNKNOWN;
    if (type == FILE_TYPE_UNKNOWN) {
        ours = CreateFileW(L"NUL", number ? GENERIC_WRITE : GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited, OPEN_EXISTING, 0, NULL);
        SetStdHandle(name, ours);
    } else if (type == FILE_TYPE_DISK && !GetFileInformationByHandle(old, &told)) {
        copy_t *c = copies + number;
        if (!CreatePipe(number ? &ours : &theirs, number ? &theirs : &ours, NULL, 65536)) return;
        SetHandleInformation(theirs, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
        c->from = number ? ours : old; c->to = number ? old : ours;
        SetStdHandle(name, theirs);
        CloseHandle(CreateThread(NULL, 0, run, c, 0, NULL));
    }
}
int wmain(int argc, wchar_t **argv) {
    wchar_t path[4096]; GetModuleFileNameW(NULL, path, 4096);
    repair(0, STD_INPUT_HANDLE); repair(1, STD_OUTPUT_HANDLE); repair(2, STD_ERROR_HANDLE);
    wchar_t *slash = wcsrchr(path, L'\\'); wcscpy(slash + 1, L"python311.dll");
    HMODULE h = LoadLibraryExW(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!h) return 101;
    return ((main_t)(void *)GetProcAddress(h, "Py_Main"))(argc, argv);
}
