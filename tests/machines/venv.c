/* The python.exe of a virtual environment, as CPython's own (PC/launcher.c): it starts the Python that pyvenv.cfg names,
   which is told by __PYVENV_LAUNCHER__, in a job that ends with this process, and waits for it. */
#include <windows.h>
#include <stdio.h>
#include <wchar.h>
static BOOL WINAPI ignore(DWORD event) { (void)event; return TRUE; }
int wmain(void) {
    static wchar_t self[4096], config[4200], home[4096], program[4200], command[40000], line[4096];
    GetModuleFileNameW(NULL, self, 4096);
    wcscpy(config, self); *wcsrchr(config, L'\\') = 0; *wcsrchr(config, L'\\') = 0; wcscat(config, L"\\pyvenv.cfg");
    FILE *file = _wfopen(config, L"rt, ccs=UTF-8");
    if (!file) { fwprintf(stderr, L"failed to locate pyvenv.cfg\n"); return 106; }
    while (fgetws(line, 4096, file)) {
        wchar_t *equals = wcschr(line, L'=');
        if (equals && !wcsncmp(line, L"home", 4)) { while (*++equals == L' '); wcscpy(home, equals); home[wcscspn(home, L"\r\n")] = 0; }
    }
    fclose(file);
    wsprintfW(program, L"%s\\python.exe", home);
    SetEnvironmentVariableW(L"__PYVENV_LAUNCHER__", self);
    wchar_t *rest = GetCommandLineW();
    if (*rest == L'"') { rest = wcschr(rest + 1, L'"'); rest++; } else while (*rest && *rest != L' ') rest++;
    wcscpy(command, L"\""); wcscat(command, self); wcscat(command, L"\""); wcscat(command, rest);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    HANDLE job = CreateJobObjectW(NULL, NULL);
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    STARTUPINFOW start = {sizeof start}; PROCESS_INFORMATION child; DWORD code = 101;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE); start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE); start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    HANDLE all[3] = {start.hStdInput, start.hStdOutput, start.hStdError};
    for (int i = 0; i < 3; i++) SetHandleInformation(all[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    SetConsoleCtrlHandler(ignore, TRUE);
    if (!CreateProcessW(program, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &child)) { fwprintf(stderr, L"cannot start %s\n", program); return 101; }
    AssignProcessToJobObject(job, child.hProcess);
    CloseHandle(child.hThread);
    WaitForSingleObjectEx(child.hProcess, INFINITE, FALSE);
    GetExitCodeProcess(child.hProcess, &code);
    return code;
}
