//! Errors of the system, and messages of PostgreSQL, in the languages of glibc and PostgreSQL: a program in another
//! locale says the same. Each is read as its English wording.

use std::{borrow::Cow, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

const SYSTEM: [&str; 7] = [
    "Operation not permitted",
    "Permission denied",
    "Cannot allocate memory",
    "Invalid argument",
    "No space left on device",
    "No such file or directory",
    "Bus error",
];

const POSTGRESQL: [&str; 3] = [
    "could not map anonymous shared memory",
    "huge pages not supported on this platform",
    "huge pages not supported with the current shared_memory_type setting",
];

/// One row for each language, in the order of [`SYSTEM`]; empty if glibc does not translate it.
#[rustfmt::skip]
const SYSTEM_ERRORS: &[[&str; SYSTEM.len()]] = &[
    ["дзеяньне не дазволена", "бракуе правоў", "немагчыма разьмеркаваць памяць", "", "Няма месца на прыладзе", "Няма такога файла ці каталога", "Памылка шыны"],
    ["Действието не е позволено", "Отказан достъп", "Не може да се задели памет", "Неправилен аргумент", "Няма свободно място на устройството", "Няма такъв файл или директория", "Грешка на адресната шина"],
    ["L’operació no és permesa", "S’ha denegat el permís", "No s’ha pogut reservar memòria", "L’argument passat no és vàlid", "No resta espai al dispositiu", "El fitxer o directori no existeix", "Error de bus"],
    ["Operace není povolena", "Operace zamítnuta", "Nelze alokovat paměť", "Nepřípustný argument", "Na zařízení není volné místo", "Adresář nebo soubor neexistuje", "Chyba na sběrnici"],
    ["Operationen er ikke tilladt", "Adgang nægtet", "Kan ikke tildele hukommelse", "Ugyldigt argument", "Ikke mere plads på enheden", "Ingen sådan fil eller filkatalog", "Busfejl"],
    ["Die Operation ist nicht erlaubt", "Keine Berechtigung", "Nicht genügend Hauptspeicher verfügbar", "Das Argument ist ungültig", "Auf dem Gerät ist kein Speicherplatz mehr verfügbar", "Datei oder Verzeichnis nicht gefunden", "Bus-Zugriffsfehler"],
    ["Η λειτουργία δεν επιτρέπεται", "Άρνηση πρόσβασης", "Δεν είναι δυνατό να δεσμευτεί μνήμη", "Μη έγκυρη παράμετρος", "Δεν έμεινε καθόλου χώρος στη συσκευή", "Δεν υπάρχει τέτοιο αρχείο ή κατάλογος", "Σφάλμα στον δίαυλο(bus)"],
    ["Operacio ne permesatas", "Mankas permeso", "Mankas sufiĉa memoro", "Nevalida argumento", "Ne haviĝas plu da spaco sur aparato", "Dosiero aŭ dosierujo ne ekzistas", "Bus-eraro"],
    ["Operación no permitida", "Permiso denegado", "No se pudo asignar memoria", "Argumento inválido", "No queda espacio en el dispositivo", "No existe el fichero o el directorio", "Error del bus"],
    ["Toiminto ei ole sallittu", "Lupa evätty", "Muistin varaaminen ei onnistu", "Virheellinen argumentti", "Laitteella ei ole tilaa jäljellä", "Tiedostoa tai hakemistoa ei ole", "Väylävirhe"],
    ["Opération non permise", "Permission non accordée", "Ne peut allouer de la mémoire", "Argument invalide", "Aucun espace disponible sur le périphérique", "Aucun fichier ou dossier de ce type", "Erreur du bus"],
    ["Operación non permitida", "Permiso denegado", "Non se pode reservar memoria", "Parámetro incorrecto", "Non hai espacio libre no dispositivo", "Non hai tal ficheiro ou directorio", "Erro no bus de datos"],
    ["Operacija nije dopuštena", "Pristup je odbijen", "Nema dovoljno memorije", "Nevaljani argument", "Nema više prostora na uređaju", "Nema takve datoteke ili direktorija", "Sabirnička greška"],
    ["A művelet nem engedélyezett", "Engedély megtagadva", "Nem foglalható memória", "Érvénytelen argumentum", "Nincs több hely a lemezen", "Nincs ilyen fájl vagy könyvtár", "Busz hiba"],
    ["Operasi tidak diijinkan", "Ijin ditolak", "Tidak dapat mengalokasikan memori", "Argumen tidak valid", "Tidak ruang lagi diperangkat", "Tidak ada berkas atau direktori seperti itu", ""],
    ["Operazione non permessa", "Permesso negato", "Impossibile allocare memoria", "Argomento non valido", "Spazio esaurito sul device", "File o directory non esistente", "Errore di bus"],
    ["許可されていない操作です", "許可がありません", "メモリを確保できません", "無効な引数です", "デバイスに空き領域がありません", "そのようなファイルやディレクトリはありません", "バスエラー"],
    ["명령을 허용하지 않음", "허가 거부", "메모리를 할당할 수 없습니다", "부적절한 인수", "장치에 남은 공간이 없음", "그런 파일이나 디렉터리가 없습니다", "버스 오류"],
    ["Operacija neleidžiama", "", "Nepavyko išskirti atminties", "Netinkamas argumentas", "Įrenginyje neliko vietos", "Toks failas ar aplankas neegzistuoja", "Magistralės klaida"],
    ["Operasjonen er ikke tillatt", "Ikke tilgang", "Kan ikke tildele minne", "Ugyldig argument", "Ikke mer plass på enheten", "Ingen slik fil eller filkatalog", "Bussfeil"],
    ["Actie is niet toegestaan", "Toegang geweigerd", "Onvoldoende geheugen beschikbaar", "Ongeldig argument", "Geen ruimte meer over op apparaat", "Bestand of map bestaat niet", "Busfout"],
    ["Operacja niedozwolona", "Brak dostępu", "Nie można przydzielić pamięci", "Zły argument", "Brak miejsca na urządzeniu", "Nie ma takiego pliku ani katalogu", "Błąd szyny"],
    ["Operação não permitida", "Permissão recusada", "Impossível alocar memória", "Argumento inválido", "Sem espaço livre no dispositivo", "Ficheiro ou pasta inexistente", "Erro de bus"],
    ["Operação não permitida", "Permissão negada", "Não foi possível alocar memória", "Argumento inválido", "Não há espaço disponível no dispositivo", "Arquivo ou diretório inexistente", "Erro no barramento"],
    ["Операция не позволена", "Отказано в доступе", "Невозможно выделить память", "Недопустимый аргумент", "На устройстве не осталось свободного места", "Нет такого файла или каталога", "Ошибка шины"],
    ["Operácia nie je povolená", "Prístup odmietnutý", "Nie je možné prideliť pamäť", "Neprípustný argument", "Na zariadení už nie je žiadne miesto", "Adresár alebo súbor neexistuje", "Chyba na zbernici"],
    ["Operacija ni dovoljena", "", "Pomnilnika ni mogoče dodeliti", "Neveljavni argument", "Na napravi ni več prostora", "Datoteka ali imenik s tem imenom ne obstaja", "Napaka vodila"],
    ["Радња није допуштена", "Овлашћење је одбијено", "Не могу да доделим меморију", "Неисправан аргумент", "Није преостало простора на уређају", "Нема такве датотеке или директоријума", "Грешка сабирнице"],
    ["Operationen inte tillåten", "Åtkomst nekas", "Kan inte allokera minne", "Ogiltigt argument", "Enheten är full", "Filen eller katalogen finns inte", "Bussfel"],
    ["İşleme izin verilmedi", "Erişim engellendi", "Bellek ayrılamadı", "Geçersiz argüman", "Aygıt üzerinde boş yer yok", "Böyle bir dosya ya da dizin yok", "Veri yolu hatası"],
    ["Дію заборонено", "Відмовлено у доступі", "Не вдалося розподілити пам’ять", "Некоректний аргумент", "Недостатньо місця на пристрої", "Немає такого файла або каталогу", "Помилка каналу обміну даними"],
    ["Thao tác không được phép", "Không đủ quyền truy cập", "Không thể cấp phát bộ nhớ", "Đối số không hợp lệ", "Không có đủ chỗ trống trên thiết bị", "Không có tập tin hoặc thư mục như vậy", "Lỗi bus"],
    ["不允许的操作", "权限不够", "无法分配内存", "无效的参数", "设备上没有空间", "没有那个文件或目录", "总线错误"],
    ["此項操作並不被允許", "拒絕不符權限的操作", "無法配置記憶體", "不適用的引數", "裝置上已無多餘空間", "沒有此一檔案或目錄", "匯流排錯誤"],
];

/// One row for each language, in the order of [`POSTGRESQL`].
#[rustfmt::skip]
const POSTGRESQL_MESSAGES: &[[&str; POSTGRESQL.len()]] = &[
    ["konnte anonymes Shared Memory nicht mappen", "Huge Pages werden auf dieser Plattform nicht unterstützt", "Huge Pages werden mit der aktuellen shared_memory_type-Einstellung nicht unterstützt"],
    ["no se pudo mapear memoria compartida anónima", "las huge pages no están soportadas en esta plataforma", "las huge pages no están soportadas con la configuración actual de shared_memory_type"],
    ["n'a pas pu créer le segment de mémoire partagée anonyme", "Huge Pages non supportées sur cette plateforme", "huge pages non supportées avec la configuration actuelle de shared_memory_type"],
    ["mappatura della memoria condivisa anonima fallita", "pagine huge non supportate su questa piattaforma", "pagine enormi non supportate con l'attuale impostazione shared_memory_type"],
    ["匿名共有メモリをマップできませんでした", "このプラットフォームではヒュージページをサポートしていません", "ヒュージページは現在のshared_memory_typeの設定ではサポートされません"],
    ["ანონიმური გაზიარებული მეხსიერების მიბმა შეუძლებელია", "ამ პლატფორმაზე უზარმაზარი გვერდები მხარდაჭერილი არაა", "shared_memory_type პარამეტრთან ერთად უზარმაზარი გვერდები მხარდაჭერილი არაა"],
    ["가용 공유 메모리 확보 실패", "huge page 기능은 이 플랫폼에서 지원되지 않음", "현재 shared_memory_type 설정은 huge page 사용을 지원하지 않습니다."],
    ["не удалось получить анонимную разделяемую память", "огромные страницы на этой платформе не поддерживаются", "огромные страницы не поддерживаются с текущим значением shared_memory_type"],
    ["kunde inte mappa anonymt delat minne", "stora sidor stöds inte på denna plattform", "stora sidor stöds inte vid nuvarande inställning av shared_memory_type"],
    ["не вдалося показати анонімну спільну пам'ять", "величезні сторінки на цій плтаформі не підтримуються", "величезні сторінки не підтримуються з поточним параметром shared_memory_type"],
    ["无法映射匿名共享内存", "此平台不支持大页", "当前 shared_memory_type 设置不支持大页"],
    ["無法映射匿名共享記憶體", "此平台不支援大頁", "目前 shared_memory_type 設定不支援大頁"],
];

struct Translations {
    search: AhoCorasick,
    /// The English wording of each phrase.
    english: Vec<&'static str>,
}

/// `None` only if the search cannot be built, which a test excludes.
static TRANSLATIONS: LazyLock<Option<Translations>> = LazyLock::new(|| {
    let (phrases, english): (Vec<_>, _) = all().unzip();
    let search = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::DFA))
        .build(phrases)
        .ok()?;
    Some(Translations { search, english })
});

/// Each translation with its English wording.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let system = SYSTEM_ERRORS.iter().flat_map(|row| row.iter().copied().zip(SYSTEM));
    let postgresql = POSTGRESQL_MESSAGES.iter().flat_map(|row| row.iter().copied().zip(POSTGRESQL));
    system.chain(postgresql).filter(|(phrase, _)| !phrase.is_empty())
}

/// The line with the known phrases of other languages in English.
pub(super) fn in_english(line: &str) -> Cow<'_, str> {
    match TRANSLATIONS.as_ref() {
        Some(translations) if translations.search.is_match(line) => {
            Cow::Owned(translations.search.replace_all(line, &translations.english))
        }
        _ => Cow::Borrowed(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Family, Harm, read};

    /// What `read` takes from a line, its name aside if that is in another language.
    fn essence(line: &str) -> Option<(Family, Harm, &'static str, Option<String>)> {
        read(line).map(|message| (message.family, message.harm, message.speaker, message.name))
    }

    #[test]
    fn errors_of_the_system_mean_the_same_in_each_language() {
        assert!(TRANSLATIONS.is_some());
        let lines = [
            "qemu-system-x86_64: unable to map backing store for guest RAM: ERROR",
            "FATAL:  could not map anonymous shared memory: ERROR",
            "failed to map /dev/hugepages/rtemap_0: ERROR",
            "mmap(NULL, 4194304, PROT_READ, MAP_PRIVATE|MAP_HUGETLB, -1, 0): ERROR",
        ];
        for (phrase, english) in SYSTEM_ERRORS.iter().flat_map(|row| row.iter().copied().zip(SYSTEM)) {
            for line in lines.iter().filter(|_| !phrase.is_empty()) {
                let (theirs, ours) = (line.replace("ERROR", phrase), line.replace("ERROR", english));
                assert_eq!(essence(&theirs), essence(&ours), "{theirs}");
            }
        }
    }

    #[test]
    fn postgresql_means_the_same_in_each_language() {
        for (phrase, english) in all().filter(|(_, english)| POSTGRESQL.contains(english)) {
            let ours = format!("FATAL:  {english}: Cannot allocate memory");
            assert!(essence(&ours).is_some_and(|(family, ..)| family != Family::Unknown), "{ours}");
            let theirs = format!("FATAL:  {phrase}: Cannot allocate memory");
            assert_eq!(essence(&theirs), essence(&ours), "{theirs}");
        }
    }

    #[test]
    fn other_text_stays() {
        for line in ["", "Cannot allocate memory", "最大页数", "a\u{1f600}b"] {
            assert!(matches!(in_english(line), Cow::Borrowed(text) if text == line));
        }
    }
}
